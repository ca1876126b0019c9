"""What only NVML knows of the GPUs, asked for in a child process with a limit on its silence."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ..errors import GpushimError, harmless, why
from . import bounded, gpus
from .model import HEALTHY, Gpu

_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvml_worker.py")

# nvml.h, nvmlReturn_t.
_LIB_RM_VERSION_MISMATCH = 18


class Answers:
    """What NVML said before it was through, failed or was given up.

    gpus: bus id -> the worker's line on it (see nvml_worker), with "nvlinks", the far ends of its
    NVLinks that are up, and "fabric" if it told of any; problem: a sentence if not all questions
    were answered, else ""; mismatch: whether the library is of another version than the kernel
    module.
    """

    __slots__ = ("cuda_version", "driver_version", "gpus", "mismatch", "problem")

    def __init__(self) -> None:
        self.driver_version = ""
        self.cuda_version: str | None = None
        self.gpus: dict[str, dict[str, Any]] = {}
        self.problem = ""
        self.mismatch = False


def ask(library: str, bus_ids: list[str], wake: list[str], silence: float) -> Answers:
    """Ask NVML about these GPUs.

    library: absolute path of the driver's libnvidia-ml.so.1, "" if there is none; wake: device
    nodes that are opened first, of GPUs whose UUID the driver does not know yet; silence: seconds
    without an answer after which NVML is given up. It starts anew with each answer, since a
    machine with many GPUs and no persistence daemon needs seconds for each.
    """
    answers = Answers()
    done: list[bool] = []

    def on_line(text: str) -> float | None:
        try:
            line = json.loads(text)
        except ValueError:
            return None
        if not isinstance(line, dict):
            return None
        if "done" in line:
            done.append(True)
        _take(answers, line)
        return silence

    arguments = [sys.executable, "-I", _WORKER, library, ",".join(wake), *bus_ids]
    try:
        outcome = bounded.run(arguments, silence, on_line)
    except OSError as error:
        raise GpushimError(f"{sys.executable} can't be started: {why(error)}.") from error
    if not done and not answers.problem:
        if outcome.status is None:
            answers.problem = (
                f"NVML gave no answer for {silence:g} seconds after it had told of "
                f"{len(answers.gpus)} of {len(bus_ids)} GPUs."
            )
        else:
            words = harmless(outcome.last_words)
            answers.problem = f"NVML's process ended with status {outcome.status}: {words}"
    return answers


def _take(answers: Answers, line: dict[str, Any]) -> None:
    if "bus_id" in line:
        answers.gpus[line["bus_id"]] = line
    elif "nvlink_of" in line:
        about = answers.gpus[line["nvlink_of"]]
        if "fabric" in line:
            about["fabric"] = line["fabric"]
        elif line["end"]:
            about.setdefault("nvlinks", []).append(line["end"])
    elif "error" in line:
        answers.problem = f"{line['error']}."
        answers.mismatch = line.get("code") == _LIB_RM_VERSION_MISMATCH
    elif "driver_version" in line:
        answers.driver_version = line["driver_version"] or ""
        answers.cuda_version = line["cuda_version"]


def merge(gpu: Gpu, said: dict[str, Any]) -> None:
    """Put NVML's line on a GPU (see nvml_worker) into it."""
    if "error" in said:
        gpu.health = said["error"] if gpu.health == HEALTHY else f"{gpu.health}; {said['error']}"
        return
    gpu.memory = said["memory"]
    gpu.reserved = said["reserved"]
    gpu.compute_capability = said["compute_capability"]
    gpu.brand = said["brand"]
    gpu.mig_enabled = said["mig_enabled"]
    gpu.model = gpu.model or said["model"] or ""
    if not gpu.uuid and gpu.health == gpus.UUID_UNKNOWN and gpus.valid_uuid(said["uuid"] or ""):
        gpu.uuid = said["uuid"]
        gpu.health = HEALTHY
