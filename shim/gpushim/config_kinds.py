"""What a configuration key is, and what it may hold."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .config import Value

# What a key holds. Durations and sizes are texts ("10s", "10m") that `seconds` and `size` read;
# numbers are kept as texts, too. Whatever has no default is "" until it is set.
FLAG = "flag"
TEXT = "text"
PATH = "path"
DURATION = "duration"
SIZE = "size"
TEXTS = "list of texts"
PATHS = "list of paths"
PROGRAMS = "list of programs"
CDI_KIND = "CDI kind"
VARIABLES = "list of variables"
PREFIXES = "list of annotation prefixes"
NUMBER = "number"
COUNT = "whole number"
CAPABILITIES = "list of capabilities"
FILES = "table of cgroup files"
INTEGER = "integer"
LABELS = "table of numbers by label"


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
        default: Value,
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
