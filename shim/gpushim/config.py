"""The configuration keys, in one table, and the values that hold for one installation.

The table is the one source for defaults, for the JSON Schema, for docs/configuration.md and for
the commented file that `gpushimctl install` writes. Reading TOML is `config_file`'s: the create
path gets its values from the snapshot, where refresh has put them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_SOURCE = "default"

# What a key holds. Durations and sizes are texts ("10s", "10m") that `seconds` and `size` read.
FLAG = "flag"
TEXT = "text"
PATH = "path"
DURATION = "duration"
SIZE = "size"
TEXTS = "list of texts"
PATHS = "list of paths"
PROGRAMS = "list of programs"


class Key:
    """One configuration key.

    kind: one of the words above; allowed: the values (of a list: the items) that may be used,
    empty where any will do; doc: one sentence.
    """

    __slots__ = ("allowed", "default", "doc", "kind", "name", "section")

    def __init__(
        self,
        section: str,
        name: str,
        kind: str,
        default: bool | str | list[str],
        doc: str,
        allowed: tuple[str, ...] = (),
    ) -> None:
        self.section = section
        self.name = name
        self.kind = kind
        self.default = default
        self.doc = doc
        self.allowed = allowed

    @property
    def full_name(self) -> str:
        return f"{self.section}.{self.name}"


# In the order in which they are documented.
SECTIONS = {
    "runtime": "The low-level runtime that does the work of containers, and gpushim's own log.",
    "host": "Where this machine keeps its driver, and how a missing driver is dealt with.",
    "request": "What a container may ask for.",
    "inject": "How a container is given its GPUs.",
}

KEYS = (
    Key(
        "runtime",
        "low-level-runtimes",
        PROGRAMS,
        ["runc", "crun"],
        "Low-level runtimes, the first usable one is taken: an absolute path, or a name that is "
        "looked for on PATH and then in the usual sbin and libexec directories.",
    ),
    Key(
        "runtime",
        "log-level",
        TEXT,
        "info",
        "The least severe entries that go into gpushim's own log.",
        ("debug", "info", "warning", "error"),
    ),
    Key(
        "runtime",
        "log-file",
        PATH,
        "",
        "gpushim's own log; empty means /var/log/gpushim/gpushim.log.",
    ),
    Key(
        "runtime",
        "log-max-size",
        SIZE,
        "10m",
        "The size at which the log is put aside as a file ending in .1 (replacing the one before) "
        "and a new one begun.",
    ),
    Key(
        "host",
        "driver-root",
        PATH,
        "/",
        "The directory beneath which the driver's libraries and programs are looked for, such as "
        "/run/nvidia/driver for a containerised driver.",
    ),
    Key("host", "dev-root", PATH, "/dev", "The directory that holds the driver's device nodes."),
    Key("host", "proc-root", PATH, "/proc", "Where proc is mounted."),
    Key("host", "sys-root", PATH, "/sys", "Where sysfs is mounted."),
    Key(
        "host",
        "helpers",
        PATHS,
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"],
        "Directories in which nvidia-modprobe, modprobe and ldconfig are looked for.",
    ),
    Key(
        "host",
        "load-driver",
        FLAG,
        True,
        "Whether a driver that is not loaded is loaded, and missing device nodes are made, when a "
        "container asks for a GPU.",
    ),
    Key(
        "host",
        "driver-wait",
        DURATION,
        "10s",
        "How long a container that asks for a GPU waits for the driver to come up.",
    ),
    Key(
        "request",
        "supported-driver-capabilities",
        TEXTS,
        ["compat32", "compute", "display", "graphics", "ngx", "utility", "video"],
        "The driver capabilities that containers may have; `all` in "
        "NVIDIA_DRIVER_CAPABILITIES means these.",
        ("compat32", "compute", "display", "graphics", "ngx", "utility", "video"),
    ),
    Key(
        "request",
        "cuda-visible-devices",
        TEXT,
        "translate",
        "What happens to a CUDA_VISIBLE_DEVICES that CUDA would not understand inside the "
        "container: host indices of granted GPUs are translated to UUIDs and anything else is "
        "warned about, or (strict) anything else is refused.",
        ("translate", "strict"),
    ),
    Key(
        "inject",
        "params-hook",
        FLAG,
        True,
        "Whether the driver's params file in the container is covered by one that keeps programs "
        "there from making device nodes themselves.",
    ),
    Key(
        "inject",
        "rootfs-write",
        TEXT,
        "private",
        "Whether the loader cache is written into a container's root file system where it is "
        "private to the container, or never (it is then mounted over the image's).",
        ("private", "never"),
    ),
)


def table() -> dict[str, Key]:
    """Every key by its full name ("section.key"), in the order of documentation."""
    return {key.full_name: key for key in KEYS}


class Config:
    """Effective values, and for each where it comes from.

    values: full name -> value as in the file (bool, str or list of str); sources: full name ->
    "default" or the path of the file that set it. Every key of the table has both.
    """

    __slots__ = ("sources", "values")

    def __init__(
        self,
        values: dict[str, bool | str | list[str]] | None = None,
        source: str = DEFAULT_SOURCE,
    ) -> None:
        """The defaults, except for `values`, which come from `source`."""
        given = values or {}
        self.values: dict[str, bool | str | list[str]] = {}
        self.sources: dict[str, str] = {}
        for key in KEYS:
            name = key.full_name
            self.values[name] = given.get(name, key.default)
            self.sources[name] = source if name in given else DEFAULT_SOURCE

    def text(self, name: str) -> str:
        value = self.values[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is no text")
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is no flag")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.values[name]
        if not isinstance(value, list):
            raise TypeError(f"{name} is no list")
        return value

    def seconds(self, name: str) -> float:
        return seconds(self.text(name))

    def size(self, name: str) -> int:
        """In bytes."""
        return size(self.text(name))

    def to_json(self) -> dict[str, Any]:
        """{"values": {full name: value}, "sources": {full name: "default" or path}}"""
        return {"values": self.values, "sources": self.sources}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Config:
        """What `to_json` gave; keys that it lacks (an older version wrote it) have defaults."""
        config = cls()
        for name in config.values:
            if name in data["values"]:
                config.values[name] = data["values"][name]
                config.sources[name] = data["sources"].get(name, DEFAULT_SOURCE)
        return config


_SECONDS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0))
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def seconds(text: str) -> float:
    """A duration in seconds: a number and ms, s, m or h ("1.5s"). ValueError for anything else."""
    for unit, factor in _SECONDS:
        number = text[: -len(unit)]
        digits = number.replace(".", "", 1)
        # isdecimal alone would let digits of other scripts pass.
        if text.endswith(unit) and digits.isdecimal() and digits.isascii() and number[-1] != ".":
            return float(number) * factor
    raise ValueError(f"{text!r} is not a duration such as 500ms, 10s, 2m or 1h")


def size(text: str) -> int:
    """A size in bytes: a whole number and k, m, g or t, which may have b or ib behind it.

    Units are binary, as Docker's are: 8g, 8gb and 8GiB are the same. ValueError for anything else.
    """
    rest = text.lower()
    number = rest.rstrip("bgikmt ")
    unit = rest[len(number) :].strip()
    for ending in ("ib", "b"):
        # "b" alone is the unit byte; "ib" alone is nothing.
        if unit.endswith(ending) and (len(unit) > len(ending) or ending == "b"):
            unit = unit[: -len(ending)]
            break
    if unit not in _BYTES or not number.isdecimal() or not number.isascii():
        raise ValueError(f"{text!r} is not a size such as 512k, 10m or 8GiB")
    return int(number) * _BYTES[unit]
