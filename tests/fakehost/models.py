"""What the GPU models that fake hosts have are like.

The figures are from NVIDIA's public data sheets, the PCI id list (pci.ids) and the numbers that
nvidia-smi prints for these boards. NVML's constants (brand, architecture) are those of nvml.h.
"""

from __future__ import annotations

from dataclasses import dataclass

BRAND = {
    "quadro": 1, "tesla": 2, "geforce": 5, "titan": 6, "quadro-rtx": 12, "rtx": 13, "nvidia": 14,
}  # fmt: skip
ARCHITECTURE = {
    "pascal": 4, "volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10,
}  # fmt: skip

COMPUTE_CLASS = 0x030200  # "3D controller": a board without display outputs.
DISPLAY_CLASS = 0x030000  # "VGA compatible controller".


@dataclass(frozen=True)
class Model:
    """A product: everything that is the same for all boards of it."""

    name: str
    device: int  # PCI device id
    subsystem: int  # PCI subsystem device id
    memory_mib: int
    capability: tuple[int, int]
    architecture: str
    brand: str
    multiprocessors: int
    power_w: int
    clocks: tuple[int, int]  # maximum SM and memory clock, MHz
    links: int = 0
    link_version: int = 0
    link_via_switch: bool = False
    mig_slice_mib: int = 0  # memory of one of the eight memory slices, 0 if there is no MIG
    mig_gb: tuple[int, ...] = ()  # what the names say for 1g, 1g (double memory), 2g, 3g, 4g, 7g
    fans: int = 0
    ecc: bool = True
    bar1_mib: int = 131072
    vbios: str = "92.00.45.00.03"
    part: str = "692-2G506-0200-000"

    @property
    def pci_class(self) -> int:
        """The class in sysfs: boards with a display output are VGA controllers."""
        return DISPLAY_CLASS if self.fans or self.brand in ("rtx", "quadro-rtx") else COMPUTE_CLASS

    @property
    def peer_to_peer(self) -> bool:
        """GeForce boards since Ada have no peer access over PCIe (NVIDIA's driver forbids it)."""
        return self.brand != "geforce" or self.links > 0


_G40 = (5, 10, 10, 20, 20, 40)
_G80 = (10, 20, 20, 40, 40, 80)
_G141 = (18, 35, 35, 71, 71, 141)
_G180 = (23, 45, 45, 90, 90, 180)

_ALL = (
    Model("NVIDIA A100-SXM4-40GB", 0x20B0, 0x134F, 40960, (8, 0), "ampere", "nvidia", 108, 400,
          (1410, 1215), 12, 3, True, 4864, _G40, bar1_mib=65536),
    Model("NVIDIA A100-SXM4-80GB", 0x20B2, 0x147F, 81920, (8, 0), "ampere", "nvidia", 108, 400,
          (1410, 1593), 12, 3, True, 9728, _G80),
    Model("NVIDIA A100-PCIE-40GB", 0x20F1, 0x145F, 40960, (8, 0), "ampere", "nvidia", 108, 250,
          (1410, 1215), 12, 3, False, 4864, _G40, bar1_mib=65536),
    Model("NVIDIA A100 80GB PCIe", 0x20B5, 0x1533, 81920, (8, 0), "ampere", "nvidia", 108, 300,
          (1410, 1512), 12, 3, False, 9728, _G80),
    Model("NVIDIA A30", 0x20B7, 0x1532, 24576, (8, 0), "ampere", "nvidia", 56, 165,
          (1440, 1215), 4, 3, False, 5952, (6, 12, 12, 0, 24, 0), bar1_mib=32768),
    Model("NVIDIA H100 80GB HBM3", 0x2330, 0x16C1, 81559, (9, 0), "hopper", "nvidia", 132, 700,
          (1980, 2619), 18, 4, True, 9856, _G80, vbios="96.00.74.00.01"),
    Model("NVIDIA H100 PCIe", 0x2331, 0x1626, 81559, (9, 0), "hopper", "nvidia", 114, 350,
          (1755, 1593), 12, 4, False, 9856, _G80, vbios="96.00.5F.00.01"),
    Model("NVIDIA H200", 0x2335, 0x18BE, 143771, (9, 0), "hopper", "nvidia", 132, 700,
          (1980, 3201), 18, 4, True, 17664, _G141, bar1_mib=262144, vbios="96.00.A0.00.01"),
    Model("NVIDIA B200", 0x2901, 0x1999, 183359, (10, 0), "blackwell", "nvidia", 148, 1000,
          (1965, 3996), 18, 5, True, 22528, _G180, bar1_mib=262144, vbios="97.00.82.00.01"),
    Model("NVIDIA L4", 0x27B8, 0x16CA, 23034, (8, 9), "ada", "nvidia", 58, 72, (2040, 6251),
          bar1_mib=32768, vbios="95.04.29.00.06"),
    Model("NVIDIA L40S", 0x26B9, 0x1851, 46068, (8, 9), "ada", "nvidia", 142, 350, (2520, 9001),
          bar1_mib=65536, vbios="95.02.66.00.02"),
    Model("NVIDIA A10", 0x2236, 0x1482, 23028, (8, 6), "ampere", "nvidia", 72, 150, (1695, 6251),
          bar1_mib=32768, vbios="94.02.5C.00.03"),
    Model("Tesla T4", 0x1EB8, 0x12A2, 15360, (7, 5), "turing", "tesla", 40, 70, (1590, 5001),
          bar1_mib=256, vbios="90.04.38.00.03"),
    Model("Tesla V100-SXM2-32GB", 0x1DB5, 0x1249, 32768, (7, 0), "volta", "tesla", 80, 300,
          (1530, 877), 6, 2, False, bar1_mib=32768, vbios="88.00.43.00.03"),
    Model("NVIDIA RTX A6000", 0x2230, 0x1459, 49140, (8, 6), "ampere", "rtx", 84, 300,
          (2100, 8001), 4, 3, False, fans=1, bar1_mib=65536, vbios="94.02.5C.00.02"),
    Model("NVIDIA RTX 6000 Ada Generation", 0x26B1, 0x16A1, 49140, (8, 9), "ada", "rtx", 142, 300,
          (3105, 10001), fans=1, bar1_mib=65536, vbios="95.02.48.00.01"),
    Model("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0x2BB5, 0x204E, 97887, (12, 0),
          "blackwell", "rtx", 188, 600, (2430, 12481), mig_slice_mib=24128,
          mig_gb=(24, 0, 48, 0, 96, 0), vbios="98.02.55.00.01"),
    Model("NVIDIA GeForce GTX 1080 Ti", 0x1B06, 0x120F, 11264, (6, 1), "pascal", "geforce", 28,
          250, (1911, 5505), fans=1, ecc=False, bar1_mib=256, vbios="86.02.39.00.01"),
    Model("NVIDIA GeForce RTX 3090", 0x2204, 0x1454, 24576, (8, 6), "ampere", "geforce", 82, 350,
          (2100, 9751), 4, 3, False, fans=2, ecc=False, bar1_mib=256, vbios="94.02.42.00.0F"),
    Model("NVIDIA GeForce RTX 4090", 0x2684, 0x16F3, 24564, (8, 9), "ada", "geforce", 128, 450,
          (3105, 10501), fans=1, ecc=False, bar1_mib=32768, vbios="95.02.3C.00.8A"),
    Model("NVIDIA GeForce RTX 5090", 0x2B85, 0x2057, 32607, (12, 0), "blackwell", "geforce", 170,
          575, (3090, 14001), fans=1, ecc=False, bar1_mib=32768, vbios="98.02.2E.00.04"),
)  # fmt: skip

MODELS = {model.name: model for model in _ALL}


def find_model(name: str) -> Model:
    """The model of that name, with or without the vendor before it; any case will do."""
    wanted = name.lower()
    for model in _ALL:
        if wanted in (model.name.lower(), model.name.lower().replace("nvidia ", "", 1)):
            return model
    raise ValueError(f"no GPU model is named {name!r}; known are: {', '.join(sorted(MODELS))}")
