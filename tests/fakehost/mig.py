"""Multi-instance GPU: profiles, instances and the device minors that belong to them.

Profile names, slices and instance ids follow NVIDIA's MIG user guide; minors follow the table of
the kernel module, as /proc/driver/nvidia-caps/mig-minors shows it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from .models import Model

MAX_GPUS, MAX_GI, MAX_CI = 32, 15, 8
CONFIG_MINOR, MONITOR_MINOR = 1, 2  # 0 is NVLink's fabric-mgmt
_FIRST = 3

# slices: (position in Model.mig_gb, memory slices, profile id that nvidia-smi shows, first
# instance id, NVML's profile number)
_PROFILES = {
    1: (0, 1, 19, 7, 0), 2: (2, 2, 14, 3, 1), 3: (3, 4, 9, 1, 2), 4: (4, 4, 5, 1, 3),
    7: (5, 8, 0, 0, 4),
}  # fmt: skip
_NAME = re.compile(r"^(?P<slices>\d)g\.(?P<gb>\d+)gb(?P<attr>\+me|\+gfx|\+me\.all|-me)?$")


@dataclass(frozen=True)
class Profile:
    """A GPU instance profile of one model."""

    name: str
    slices: int
    memory_slices: int
    profile_id: int
    number: int  # NVML_GPU_INSTANCE_PROFILE_*
    memory_mib: int
    first_id: int


@dataclass
class MigDevice:
    """One compute instance, which is what users call a MIG device."""

    uuid: str
    gi: int
    ci: int
    gi_minor: int
    ci_minor: int
    profile: Profile
    ci_slices: int
    multiprocessors: int
    memory_used: int = 0
    processes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As nvidia-smi -L has it: 1g.10gb, or 1c.3g.40gb for a part of an instance."""
        whole = self.ci_slices == self.profile.slices
        return self.profile.name if whole else f"{self.ci_slices}c.{self.profile.name}"


def access_minor(gpu_minor: int, gi: int, ci: int | None = None) -> int:
    """The minor of /dev/nvidia-caps/nvidia-capN for a GPU instance, or for a compute instance."""
    base = _FIRST + (gpu_minor * MAX_GI + gi) * (MAX_CI + 1)
    return base if ci is None else base + 1 + ci


def minors_text() -> str:
    """/proc/driver/nvidia-caps/mig-minors: every possible instance, whether it is there or not."""
    lines = [f"config {CONFIG_MINOR}", f"monitor {MONITOR_MINOR}"]
    for gpu in range(MAX_GPUS):
        for gi in range(MAX_GI):
            lines.append(f"gpu{gpu}/gi{gi}/access {access_minor(gpu, gi)}")
            lines += [
                f"gpu{gpu}/gi{gi}/ci{ci}/access {access_minor(gpu, gi, ci)}" for ci in range(MAX_CI)
            ]
    return "\n".join(lines) + "\n"


def profiles(model: Model) -> list[Profile]:
    """All profiles of a model, small ones first."""
    found = []
    for slices, (place, memory, profile_id, first, number) in _PROFILES.items():
        gb = model.mig_gb[place] if model.mig_gb else 0
        if gb:
            name = f"{slices}g.{gb}gb"
            mib = model.mig_slice_mib * memory
            found.append(Profile(name, slices, memory, profile_id, number, mib, first))
            if slices == 1:
                found.append(Profile(name + "+me", 1, memory, 20, 7, mib, first))
    if model.mig_gb and model.mig_gb[1]:
        mib = model.mig_slice_mib * 2
        found.append(Profile(f"1g.{model.mig_gb[1]}gb", 1, 2, 15, 9, mib, 7))
    return found


def max_devices(model: Model) -> int:
    """How many MIG devices a board can have: seven, or four on those without a 7g profile."""
    if not model.mig_gb:
        return 0
    return 7 if model.mig_gb[5] else 4


def layout(model: Model, uuid: str, minor: int, wanted: tuple[str, ...]) -> list[MigDevice]:
    """The MIG devices of one GPU for a list such as ("3g.40gb", "1g.10gb", "3g.40gb:1c,2c").

    After a colon are the compute instances; without it one takes the whole GPU instance.
    """
    known = {profile.name: profile for profile in profiles(model)}
    used: set[int] = set()
    devices: list[MigDevice] = []
    for entry in wanted:
        name, _, parts = entry.partition(":")
        profile = known.get(name)
        if profile is None or not _NAME.match(name):
            raise ValueError(f"{model.name} has no MIG profile {name!r}: {', '.join(known)}")
        gi = next(i for i in range(profile.first_id, MAX_GI) if i not in used)
        used.add(gi)
        slices = [int(part.rstrip("c")) for part in parts.split(",")] if parts else [profile.slices]
        if sum(slices) > profile.slices:
            raise ValueError(f"compute instances {parts} do not fit in {name}")
        for ci, width in enumerate(slices):
            devices.append(_device(model, uuid, minor, profile, gi, ci, width))
    whole = {device.gi: device.profile for device in devices}.values()
    taken = sum(profile.slices for profile in whole)
    memory = sum(profile.memory_mib for profile in whole)
    if taken > max_devices(model) or memory > model.memory_mib:
        raise ValueError(f"the MIG instances {', '.join(wanted)} do not fit on one {model.name}")
    return devices


def _device(
    model: Model, uuid: str, minor: int, profile: Profile, gi: int, ci: int, slices: int
) -> MigDevice:
    text = hashlib.sha256(f"{uuid}/{gi}/{ci}/{profile.name}".encode()).hexdigest()
    name = f"MIG-{text[:8]}-{text[8:12]}-5{text[13:16]}-b{text[17:20]}-{text[20:32]}"
    per_slice = model.multiprocessors // 7 // 2 * 2 or 2
    return MigDevice(name, gi, ci, access_minor(minor, gi), access_minor(minor, gi, ci), profile,
                     slices, per_slice * slices)  # fmt: skip
