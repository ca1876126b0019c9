"""The configuration keys on what containers with GPUs share, and what they may not do."""

from __future__ import annotations

from .config_kinds import CAPABILITIES, COUNT, FILES, FLAG, NUMBER, SIZE, TEXT, Key

SHARE = (
    Key(
        "limits",
        "cpus-per-gpu",
        NUMBER,
        "",
        "Processors by time for each whole GPU, and in proportion for parts of one.",
    ),
    Key(
        "limits",
        "memory-per-gpu",
        SIZE,
        "",
        "Memory of the host for each whole GPU, and in proportion for parts of one (64 MiB at the "
        "least).",
    ),
    Key(
        "limits",
        "pids-per-gpu",
        COUNT,
        "",
        "Processes and threads for each whole GPU, and in proportion for parts of one (32 at the "
        "least).",
    ),
    Key(
        "limits",
        "shm-per-gpu",
        SIZE,
        "",
        "Size of /dev/shm for each whole GPU, where it is a tmpfs of the container's own and of "
        "the size that engines give it by themselves (64 MiB).",
    ),
    Key(
        "limits",
        "numa",
        TEXT,
        "prefer",
        "Whether containers are bound to the processors and the memory of their GPUs' NUMA nodes "
        "(bind), have their memory from there as long as there is some, where the low-level "
        "runtime can do that (prefer), or neither (off).",
        ("bind", "prefer", "off"),
    ),
    Key(
        "limits",
        "unified",
        FILES,
        {},
        'Files of cgroup version 2 and what is written to each, such as "cpu.weight" = "200"; on '
        "version 1 it is what comes nearest, or a warning.",
    ),
    Key(
        "security",
        "privileged",
        TEXT,
        "warn",
        "Whether a privileged container, which sees all GPUs whatever it is granted, may have GPUs "
        "with a warning, or is refused.",
        ("warn", "refuse"),
    ),
    Key(
        "security",
        "drop-capabilities",
        CAPABILITIES,
        [],
        "Capabilities that no process of a container with GPUs has, such as SYS_PTRACE.",
    ),
    Key(
        "security",
        "no-new-privileges",
        FLAG,
        False,
        "Whether no process of a container with GPUs gets more privileges by setuid programs.",
    ),
)
