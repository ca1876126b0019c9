"""A complete NVIDIA host in a directory, for tests and for the demonstration.

    host = build(tmp_path, Description(gpus=4))
    host.set_memory_used(0, 10 << 30)

See README.md beside this file for what is there and what is not.
"""

from __future__ import annotations

from .description import UNKNOWN_UUID, Description, Gpu, GpuSpec
from .host import FakeHost, build
from .libraries import write_library
from .models import MODELS, Model
from .presets import PRESETS, preset

__all__ = [
    "MODELS",
    "PRESETS",
    "UNKNOWN_UUID",
    "Description",
    "FakeHost",
    "Gpu",
    "GpuSpec",
    "Model",
    "build",
    "preset",
    "write_library",
]
