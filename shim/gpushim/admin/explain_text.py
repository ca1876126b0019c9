"""What gpushimctl explain says of a decision, in lines for people."""

from __future__ import annotations

import datetime
import json
from typing import Any

from ..request.nvidia import brief
from . import explain_cgroup


def tell(data: dict[str, Any]) -> list[str]:
    """A decision record, a refusal, or what is known of a bundle whose container is gone."""
    if data.get("id") is None:
        return [f"Bundle {data['bundle']}: gpushim changed it, for a container that is gone."]
    name = data.get("name")
    lines = [f"Container {data['id']}{f' ({name})' if name else ''}"]
    if "sentence" in data:
        return lines + _refused(data)
    request, grant = data["request"], data["grant"]
    lines.append(f"  bundle: {data['bundle']}")
    lines.append(f"  handed over to: {data['runtime']}")
    lines += asked(request)
    lines += _granted(grant, request, bool(data.get("by_engine")))
    lines.append("Changed:" if any(data["edits"].values()) else "Changed: nothing")
    lines += [f"  {line}" for line in edit_lines(data["edits"])]
    if data.get("cgroup"):
        lines.append("Cgroup:")
        lines += [f"  {line}" for line in explain_cgroup.lines(data["cgroup"])]
    # Of a record that another version wrote, notes may be missing.
    lines += [f"Note: {note}" for note in data.get("notes", [])]
    lines += [f"Warning: {warning}" for warning in data.get("warnings", [])]
    return lines


def _refused(data: dict[str, Any]) -> list[str]:
    if data.get("runs"):
        return [f"Granted: nothing. {data['sentence']}"]
    when = datetime.datetime.fromtimestamp(data["refused"]).astimezone()
    lines = [f"  refused: {when.isoformat(sep=' ', timespec='seconds')}"]
    if data.get("request"):
        lines += asked(data["request"])
    lines.append(f"Refused: {data['sentence']}")
    if data.get("hint"):
        lines.append(f"  {data['hint']}")
    return lines + [f"Warning: {warning}" for warning in data.get("warnings") or []]


def asked(request: dict[str, Any]) -> list[str]:
    """What was asked for, each with where it was said."""
    sources = dict(request["sources"])
    lines = [f"Asked for: {_devices(request)} (from {sources.pop('devices')})"]
    if request.get("cdi"):
        lines.append(f"  CDI devices: {', '.join(request['cdi'])} (from {sources.pop('cdi')})")
    if request.get("driver", True):
        source = sources.pop("capabilities", "default")
        shown = ", ".join(request["capabilities"]) or "none"
        lines.append(f"  capabilities: {shown} (from {source})")
    for key, value in request.get("keys", {}).items():
        lines.append(f"  {key}: {_value(key, value)} (from {sources.pop(key)})")
    lines += [f"  {key} from {source}" for key, source in sources.items()]
    lines += [
        f"  the image demands: {brief(expression)} ({name})"
        for name, expression in request.get("requirements", [])
    ]
    return lines


def _devices(request: dict[str, Any]) -> str:
    if not request.get("driver", True):
        return "no GPU"
    count = request.get("count")
    if count is not None:
        return f"{count} GPU{'' if count == 1 else 's'}, whichever"
    return ", ".join(request["devices"]) or "no GPU, only driver files"


def _value(key: str, value: Any) -> str:
    """A key's value as people read it."""
    if key == "memory" and isinstance(value, int):
        return f"{value >> 20} MiB of each GPU" if not value & 0xFFFFF else f"{value} bytes"
    if key == "compute":
        return f"{value}% of each GPU's multiprocessors"
    if key == "compute-capability":
        return "".join(value)
    if key == "wait":
        return f"{value:g} seconds"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _granted(grant: dict[str, Any], request: dict[str, Any], by_engine: bool) -> list[str]:
    whole, parts = grant["gpus"], grant.get("mig", [])
    if not whole and not parts and not request.get("driver", True):
        return []
    words = [f"{len(whole)} GPU{'' if len(whole) == 1 else 's'}"] if whole or not parts else []
    if parts:
        words.append(f"{len(parts)} MIG device{'' if len(parts) == 1 else 's'}")
    lines = [f"Granted{' by the engine' if by_engine else ''}: {' and '.join(words)}"]
    for gpu in whole:
        lines.append(f"  {gpu['index']}: {gpu['uuid']} (nvidia{gpu['minor']}, {gpu['model']})")
    for mig in parts:
        lines.append(
            f"  {mig['name']}: {mig['uuid']} ({mig['profile']} of nvidia{mig['minor']}, "
            f"{mig['model']})"
        )
    return lines


def edit_lines(edits: dict[str, Any]) -> list[str]:
    """Edits (as `Edits.to_json` gives them), each in a line."""
    lines = [f"environment {entry}" for entry in edits["env"]]
    lines += [f"removed from the environment: {name}" for name in edits["removeEnv"]]
    lines += [
        f"device {node['path']} ({node['major']}:{node['minor']}, {node['permissions']})"
        for node in edits["deviceNodes"]
    ]
    lines += [f"mount {mount['hostPath']} at {mount['containerPath']}" for mount in edits["mounts"]]
    lines += [f"hook {hook['hookName']}: {' '.join(hook['args'])}" for hook in edits["hooks"]]
    lines += [f"removed hooks called {name}" for name in edits["removeHooks"]]
    lines += [f"extra group {gid}" for gid in edits["additionalGids"]]
    lines += [f"removed device {path}" for path in edits.get("removeDevices", [])]
    lines += [f"removed mount {path}" for path in edits.get("removeMounts", [])]
    lines += [
        f"network interface {device['hostInterfaceName']} as {device['name']}"
        for device in edits.get("netDevices", [])
    ]
    if edits.get("intelRdt"):
        lines.append(f"intelRdt {json.dumps(edits['intelRdt'])}")
    return lines + _limit_lines(edits)


def _limit_lines(edits: dict[str, Any]) -> list[str]:
    lines = [
        f"{section}.{name} = {value}"
        for section, members in edits.get("resources", {}).items()
        for name, value in members.items()
    ]
    policy = edits.get("memoryPolicy")
    lines += [f"memory policy {policy['mode']} of nodes {policy['nodes']}"] if policy else []
    lines += [f"size of {path} = {size}" for path, size in edits.get("tmpfsSizes", {}).items()]
    lines += [f"removed capability {name}" for name in edits.get("dropCapabilities", [])]
    return lines + (["no new privileges"] if edits.get("noNewPrivileges") else [])
