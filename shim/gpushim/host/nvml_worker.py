"""The program that asks NVML, in a process of its own, since a sick driver can hang any call.

It is run by its path, as `python -I nvml_worker.py LIBRARY WAKE BUS_ID...`: LIBRARY is the
absolute path of the driver's libnvidia-ml.so.1, WAKE a comma list of device nodes that are opened
first (the driver learns the UUID of a GPU when its node is first opened). With LIBRARY empty that
is all it does. Each answer is one line
of JSON on stdout, written as soon as it is known, so that what came before a hang counts:

    {"driver_version": "550.163.01", "cuda_version": "12.4"}   or   {"error": words, "code": n}
    {"bus_id": ..., "uuid": ..., "model": ..., "memory": bytes, "reserved": bytes or null,
     "compute_capability": "8.0", "brand": "tesla", "mig_enabled": false, "mig_devices": [],
     "mig_problem": ""}
                                                               or   {"bus_id": ..., "error": words}
    {"nvlink_of": bus id, "end": "switch" or bus id, "" for one that is down}
    {"nvlink_of": bus id, "fabric": words}
    {"done": true}

A MIG device is {"index": 0, "uuid": "MIG-...", "profile": "1g.10gb", "memory": bytes,
"gpu_instance": 7, "compute_instance": 0}; mig_problem says why some may be missing. There is a line
for each NVLink of a GPU, with its far end, and then one that names the NVSwitch fabric that the GPU
has joined, "" where NVML knows none.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pynvml

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9

# The brand names that NVIDIA_REQUIRE_* variables use.
_BRANDS = {
    pynvml.NVML_BRAND_UNKNOWN: "unknown",
    pynvml.NVML_BRAND_QUADRO: "quadro",
    pynvml.NVML_BRAND_TESLA: "tesla",
    pynvml.NVML_BRAND_NVS: "nvs",
    pynvml.NVML_BRAND_GRID: "grid",
    pynvml.NVML_BRAND_GEFORCE: "geforce",
    pynvml.NVML_BRAND_TITAN: "titan",
    pynvml.NVML_BRAND_NVIDIA_VAPPS: "vapps",
    pynvml.NVML_BRAND_NVIDIA_VPC: "vpc",
    pynvml.NVML_BRAND_NVIDIA_VCS: "vcs",
    pynvml.NVML_BRAND_NVIDIA_VWS: "vws",
    pynvml.NVML_BRAND_NVIDIA_CLOUD_GAMING: "cloudgaming",
    pynvml.NVML_BRAND_QUADRO_RTX: "quadrortx",
    pynvml.NVML_BRAND_NVIDIA_RTX: "nvidiartx",
    pynvml.NVML_BRAND_NVIDIA: "nvidia",
    pynvml.NVML_BRAND_GEFORCE_RTX: "geforcertx",
    pynvml.NVML_BRAND_TITAN_RTX: "titanrtx",
}

# What a healthy GPU may answer to a question that does not concern it, or that this driver or
# user cannot ask.
_NO_ANSWER = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
}

# What NVML answers for a place in which there is no MIG device.
_NO_INSTANCE = {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT}


def main(arguments: list[str]) -> None:
    library, wake, *bus_ids = arguments
    # If refresh is killed, what waits for the driver here must not stay behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    for node in filter(None, wake.split(",")):
        open_once(node)
    if not library:
        say({"done": True})
        return
    try:
        # Loaded by its path, it is what pynvml's own search by name then finds: so the library is
        # the driver root's even where the host's loader doesn't know that directory.
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        pynvml.nvmlInit()
    except OSError:
        say({"error": f"{library} can't be loaded", "code": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND})
        return
    except pynvml.NVMLError as error:
        say({"error": f"NVML says: {error}", "code": error.value})
        return
    cuda = answer(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    say(
        {
            "driver_version": answer(pynvml.nvmlSystemGetDriverVersion),
            "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        }
    )
    well = []
    for bus_id in bus_ids:
        facts = gpu(bus_id)
        say(facts)
        if "error" not in facts:
            well.append(bus_id)
    # Last, since all else matters more if the driver hangs.
    for bus_id in well:
        tell_nvlinks(bus_id)
    say({"done": True})


def open_once(node: str) -> None:
    """Open and close a device node, which makes the driver initialise the GPU."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return  # what NVML then says of the GPU tells more than the errno


def gpu(bus_id: str) -> dict[str, Any]:
    """What NVML knows of one GPU, or what is wrong with it."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
        memory = answer(pynvml.nvmlDeviceGetMemoryInfo, handle)
        # The version of this call since driver 510 alone tells what the driver keeps for itself.
        apart = answer(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        compute = answer(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        mig = answer(pynvml.nvmlDeviceGetMigMode, handle)
        mig_enabled = mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE if mig else False
        mig_devices, mig_problem = instances(handle) if mig_enabled else ([], "")
        return {
            "bus_id": bus_id,
            "uuid": answer(pynvml.nvmlDeviceGetUUID, handle),
            "model": answer(pynvml.nvmlDeviceGetName, handle),
            "memory": memory.total if memory else None,
            "reserved": apart.reserved if apart else None,
            "compute_capability": f"{compute[0]}.{compute[1]}" if compute else None,
            "brand": _BRANDS.get(answer(pynvml.nvmlDeviceGetBrand, handle), "unknown"),
            "mig_enabled": mig_enabled,
            "mig_devices": mig_devices,
            "mig_problem": mig_problem,
        }
    except pynvml.NVMLError as error:
        return {"bus_id": bus_id, "error": f"NVML says: {error}"}


def instances(handle: Any) -> tuple[list[dict[str, Any]], str]:
    """The MIG devices of a GPU, and what went wrong if some may be missing.

    NVML numbers as many places as there can be devices, and those of none in use are not found.
    One that vanishes between two questions is found out by whoever compares with the kernel
    module's list.
    """
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(instance(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index), index))
        except pynvml.NVMLError as error:
            if error.value not in _NO_INSTANCE:
                return found, f"NVML says: {error}"
    return found, ""


def instance(handle: Any, index: int) -> dict[str, Any]:
    """What NVML knows of one MIG device; raises NVMLError if it is gone or its GPU in trouble.

    Its name is that of the GPU and of the profile: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
    """
    memory = answer(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return {
        "index": index,
        "uuid": answer(pynvml.nvmlDeviceGetUUID, handle),
        "profile": (answer(pynvml.nvmlDeviceGetName, handle) or "").rpartition("MIG ")[2],
        "memory": memory.total if memory else None,
        "gpu_instance": pynvml.nvmlDeviceGetGpuInstanceId(handle),
        "compute_instance": pynvml.nvmlDeviceGetComputeInstanceId(handle),
    }


def tell_nvlinks(bus_id: str) -> None:
    """Say where each NVLink of a GPU leads to, as soon as it is known.

    Bandwidth is no health: a GPU whose links can't be asked about is one without more of them.
    NVML tells no maximum; the first link that there is no answer for is one too many.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            state = answer(pynvml.nvmlDeviceGetNvLinkState, handle, link)
            if state is None:
                break
            up = state == pynvml.NVML_FEATURE_ENABLED
            say({"nvlink_of": bus_id, "end": far_end(handle, link) if up else ""})
        say({"nvlink_of": bus_id, "fabric": fabric(handle)})
    except pynvml.NVMLError:
        return


def far_end(handle: Any, link: int) -> str:
    """ "switch", a GPU's bus id, or "" for what is neither.

    Old drivers don't tell of which kind it is; then it is the bus id of an NVSwitch, too.
    """
    kind = answer(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return "switch"
    if kind not in (None, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU):
        return ""
    far = answer(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    return f"{far.domain:04x}:{far.bus:02x}:{far.device:02x}.0" if far else ""


def fabric(handle: Any) -> str:
    """The cluster and clique that a GPU on NVSwitches has joined: those of one clique reach each
    other by NVLink. "" where NVML knows of none, as before Hopper.
    """
    info = pynvml.c_nvmlGpuFabricInfo_t()
    try:
        pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    except pynvml.NVMLError:
        return ""
    if info.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return ""
    return f"{bytes(info.clusterUuid).hex()}/{info.cliqueId}"


def answer(question: Callable[..., Any], *arguments: Any) -> Any:
    """NVML's answer, None where it has none; raises NVMLError if the GPU is in trouble."""
    try:
        found = question(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _NO_ANSWER:
            return None
        raise
    # Older versions of nvidia-ml-py return bytes.
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
