"""Docker's daemon.json: what registering gpushim there, and taking it out again, changes.

Pure decisions on the file's text; `jsonfile` writes. Format: docs.docker.com, "dockerd", section
"Daemon configuration file". `runtimes` and `default-runtime` are read again on SIGHUP.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import GpushimError
from . import swarm
from .jsonfile import FileChange, JsonFile
from .jsontext import drop, put

RUNTIME_NAME = "gpushim"
_BUILT_IN = ("runc", "io.containerd.runc.v2")


class Former:
    """What a daemon.json held before gpushim was registered, for uninstall.

    existed: whether there was a file; had_runtimes: whether it had a `runtimes` object; entry: its
    entry called gpushim, None for none; default_taken: whether gpushim was made the default;
    default: the default runtime before that, None for none; resources_taken: whether the node's
    GPUs were put into `node-generic-resources`; resources: that member before, None for none.
    """

    __slots__ = (
        *("default", "default_taken", "entry", "existed", "had_runtimes"),
        *("resources", "resources_taken"),
    )

    def __init__(
        self,
        existed: bool,
        had_runtimes: bool,
        entry: Any,
        default_taken: bool,
        default: str | None,
    ) -> None:
        self.existed = existed
        self.had_runtimes = had_runtimes
        self.entry = entry
        self.default_taken = default_taken
        self.default = default
        self.resources_taken = False
        self.resources: list[str] | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Former:
        first = ("existed", "had_runtimes", "entry", "default_taken", "default")
        made = cls(**{name: data[name] for name in first})
        # Records of the first versions know nothing of Swarm.
        made.resources_taken = data.get("resources_taken", False)
        made.resources = data.get("resources")
        return made


class Plan:
    """A change of daemon.json, what was there before, and what is to be told, in sentences."""

    __slots__ = ("change", "former", "notes")

    def __init__(self, change: FileChange, former: Former, notes: list[str]) -> None:
        self.change = change
        self.former = former
        self.notes = notes


def register(
    file: JsonFile, launcher: str, default: bool, known: Former | None, by_flag: bool = False
) -> Plan:
    """How `file` changes so that the runtime gpushim is `launcher`, and the default if `default`.

    known: what an earlier install recorded of this file; by_flag: dockerd has the runtime on its
    command line, and would refuse a file that has runtimes, too. Raises GpushimError for members
    of wrong types; a file that has all this already does not change.
    """
    runtimes, former_default = _members(file)
    entry = runtimes.get(RUNTIME_NAME)
    text = file.text
    notes = []
    if not is_ours(entry, launcher) and not by_flag:
        text = put(text, ["runtimes", RUNTIME_NAME], {"path": launcher})
    if default:
        text = put(text, ["default-runtime"], RUNTIME_NAME)
    if file.has_mark:
        notes.append(f"{file.path} began with a byte order mark, which was left out.")
    before = Former(
        existed=file.content is not None,
        had_runtimes=bool(runtimes) or file.data.get("runtimes") is not None,
        entry=None if is_ours(entry, launcher) else entry,
        default_taken=default and former_default != RUNTIME_NAME,
        default=former_default if default and former_default != RUNTIME_NAME else None,
    )
    if known is not None and is_ours(entry, launcher):
        # gpushim's own earlier work is not what was there before it.
        before.existed, before.had_runtimes = known.existed, known.had_runtimes
        before.entry = known.entry
    if known is not None:
        before.resources_taken, before.resources = known.resources_taken, known.resources
    if known is not None and known.default_taken and former_default == RUNTIME_NAME:
        before.default_taken, before.default = True, known.default
    changed = text != file.text or file.has_mark
    after = text.encode() if changed else file.content
    return Plan(FileChange(file.path, file.content, after), before, notes)


def unregister(file: JsonFile, launcher: str, known: Former | None) -> Plan:
    """How `file` changes so that nothing in it names `launcher` any more.

    known: what install recorded; without it gpushim's entries are just taken out. An entry of the
    name gpushim that is another program's stays. Raises GpushimError for members of wrong types.
    """
    runtimes, default = _members(file)
    notes: list[str] = []
    text = file.text
    former = known or Former(True, True, None, False, None)
    if former.resources_taken:
        text = swarm.without_ours(text, file.data.get(swarm.MEMBER), former.resources)
    if not is_ours(runtimes.get(RUNTIME_NAME), launcher):
        if RUNTIME_NAME not in runtimes and default == RUNTIME_NAME and former.default_taken:
            # The runtime itself was on dockerd's command line.
            text = _restore_default(text, former.default, runtimes, notes)
            return Plan(FileChange(file.path, file.content, text.encode()), former, notes)
        if RUNTIME_NAME in runtimes:
            notes.append(f"The runtime gpushim in {file.path} is another program's, and stays.")
        kept = text.encode() if text != file.text else file.content
        return Plan(FileChange(file.path, file.content, kept), former, notes)
    if default == RUNTIME_NAME and (former.default_taken or former.entry is None):
        # A default that names a missing runtime would stop dockerd from starting.
        text = _restore_default(text, former.default, runtimes, notes)
    if former.entry is not None:
        text = put(text, ["runtimes", RUNTIME_NAME], former.entry)
    elif former.had_runtimes or len(runtimes) > 1:
        text = drop(text, ["runtimes", RUNTIME_NAME])
    else:
        text = drop(text, ["runtimes"])
    after: bytes | None = text.encode()
    if not former.existed and json.loads(text) == {}:
        after = None
    return Plan(FileChange(file.path, file.content, after), former, notes)


def told_off(plan: Plan) -> FileChange | None:
    """What a running dockerd must read so that it forgets gpushim; None if the plan's end will do.

    On SIGHUP dockerd keeps what it has of a member that is not in the file any more (moby,
    daemon/reload_unix.go, reloadPlatform), so both are said in full for as long as that takes.
    """
    change = plan.change
    if change.before is None or change.before == change.after:
        return None
    before = json.loads(change.before.decode("utf-8-sig"))
    text = (change.after or b"{}\n").decode()
    after = json.loads(text)
    if not after.get("runtimes"):
        text = put(text, ["runtimes"], {})
    if before.get("default-runtime") and not after.get("default-runtime"):
        text = put(text, ["default-runtime"], _BUILT_IN[0])
    content = text.encode()
    return FileChange(change.path, change.before, content) if content != change.after else None


def _restore_default(
    text: str, default: str | None, runtimes: dict[str, Any], notes: list[str]
) -> str:
    if default is None:
        return drop(text, ["default-runtime"])
    if default in runtimes or default in _BUILT_IN:
        return put(text, ["default-runtime"], default)
    notes.append(
        f"The former default runtime {default} is not registered any more: Docker's own is used."
    )
    return drop(text, ["default-runtime"])


def is_ours(entry: Any, launcher: str) -> bool:
    """Whether a member of `runtimes` is the one that runs `launcher`."""
    return isinstance(entry, dict) and entry.get("path") == launcher


def _members(file: JsonFile) -> tuple[dict[str, Any], str | None]:
    """The runtimes and the default runtime in `file`; null is nothing, as it is for dockerd."""
    runtimes = file.data.get("runtimes")
    default = file.data.get("default-runtime")
    if runtimes is not None and not isinstance(runtimes, dict):
        raise _wrong_type(file, "runtimes", "an object")
    if default is not None and not isinstance(default, str):
        raise _wrong_type(file, "default-runtime", "a text")
    for name, entry in (runtimes or {}).items():
        if not isinstance(entry, dict):
            raise _wrong_type(file, f"runtimes.{name}", "an object")
    return runtimes or {}, default or None


def _wrong_type(file: JsonFile, member: str, should: str) -> GpushimError:
    return GpushimError(
        f"In {file.path}, {member} is not {should}; the file was left as it is.",
        "Correct it first: an engine that is restarted with it does not start.",
    )
