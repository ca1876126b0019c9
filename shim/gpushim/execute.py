"""exec into a container with a grant: the added variables, in the engine's own process file.

What create adds to a spec's environment does not reach a process that is started later: the engine
brings its own list. The file is replaced by rename beside itself, since the engine deletes that
name and no other (tried with Docker 20.10 to 28.5 and Podman).
"""

from __future__ import annotations

import posix

from gpushim import records
from gpushim.decision import state_root_of
from gpushim.errors import why
from gpushim.inject.environment import container_environment
from gpushim.oci.apply import process
from gpushim.oci.edits import Edits
from gpushim.oci.files import read_small, real_path, write_whole
from gpushim.oci.jsonpatch import patch, read
from gpushim.oci.jsontext import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpushim.main import Call
    from gpushim.records import Record

_LIMIT = 64 << 20


def execute(call: Call) -> None:
    """Adds the container's variables to the process that is to be started in it."""
    record = _record(call)
    if record is None or record.data.get("by_engine"):
        return
    path = call.invocation.process
    if path.startswith(("/dev/", "/proc/")):
        return  # an open file or a pipe, which can be read once and not be replaced by a name
    try:
        text = read_small(path, _LIMIT).decode("utf-8", "surrogateescape")
        status = posix.stat(path)
    except OSError:
        return
    changed = add_variables(text, record)
    if changed == text:
        return
    try:
        data = changed.encode("utf-8", "surrogateescape")
        write_whole(real_path(path), data, 0o600, (status.st_uid, status.st_gid))
    except OSError as error:
        # The container has its GPUs; without the variables a process lacks less than if it did not
        # start at all.
        call.log.fields["id"] = call.invocation.container_id
        call.log.warn(f"The process has not got the GPUs' variables: {path}: {why(error)}.")
        call.log.write("warning", "exec", dumps)


def _record(call: Call) -> Record | None:
    container_id, state_root = call.invocation.container_id, state_root_of(call)
    found = records.find(call.places.containers, container_id, state_root)
    return found or records.find(call.own.containers, container_id, state_root)


def add_variables(text: str, record: Record) -> str:
    """The process file's `text` with the variables of the container's grant.

    What is taken from the container's first process for security is so from this one, too.

    What a record does not have was not known to the version that wrote it. A file that is no JSON
    object stays as it is: the low-level runtime says best what is wrong.
    """
    try:
        whole = read(text)
        present = whole.found["env"][2] if "env" in whole.found else []
        edits = Edits()
        if record.data.get("has_driver", True):
            edits.env, _ = container_environment(
                present if isinstance(present, list) else [],
                _devices(record.data["grant"]),
                record.data["library_path"],
                False,
            )
        edits.env = {**record.data.get("variables", {}), **edits.env}
        made = record.data.get("edits", {})
        edits.drop_capabilities = made.get("dropCapabilities", [])
        edits.no_new_privileges = made.get("noNewPrivileges", False)
        return patch(text, process(edits), whole)
    except (ValueError, KeyError, TypeError):
        return text  # a record that is damaged has nothing to say, too


def _devices(grant: dict[str, Any]) -> list[tuple[str, str]]:
    """(name on this host, UUID) of each device of a grant, in the order that create had.

    The first records knew no MIG devices.
    """
    found = [(str(gpu["index"]), gpu["uuid"]) for gpu in grant["gpus"]]
    found += [(str(mig["name"]), mig["uuid"]) for mig in grant.get("mig", [])]
    return sorted(found, key=lambda device: [int(part) for part in device[0].split(":")])
