"""Asks a running dockerd what it goes by, and which containers need a runtime."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any

from .dockerd import Daemon

_DEFAULT_SOCKET = "/var/run/docker.sock"
_TIMEOUT = 5.0
_PATIENCE = 10.0
# What stopping takes beyond the time that the container is given.
_STOP_SECONDS = 30.0
_PAUSE = 0.05
_SILENCE = (OSError, http.client.HTTPException, ValueError)


class Runtimes:
    """dockerd's runtimes: name -> path ("" for one that has none), and which is the default."""

    __slots__ = ("default", "paths")

    def __init__(self, paths: dict[str, str], default: str) -> None:
        self.paths = paths
        self.default = default


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float = _TIMEOUT) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def sockets(daemon: Daemon, settings: dict[str, Any]) -> list[str]:
    """The Unix sockets that a dockerd may answer at; settings: what is in its daemon.json."""
    hosts = daemon.options("--host") + daemon.options("-H")
    listed = settings.get("hosts")
    hosts += [host for host in listed if isinstance(host, str)] if isinstance(listed, list) else []
    found = [host[len("unix://") :] for host in hosts if host.startswith("unix:///")]
    # With fd:// the socket is systemd's, at the usual place.
    return found or [_DEFAULT_SOCKET]


def ask(path: str) -> Runtimes | None:
    """What the dockerd at a socket goes by (GET /info of its API); None if it does not tell."""
    try:
        data = _get(path, "/info")
        paths = {name: str(entry.get("path") or "") for name, entry in data["Runtimes"].items()}
        return Runtimes(paths, str(data["DefaultRuntime"]))
    except (*_SILENCE, KeyError, TypeError, AttributeError):
        return None


def resources(daemon: Daemon, settings: dict[str, Any]) -> list[str] | None:
    """The named generic resources that a dockerd hands out, "KIND=VALUE"; None if it does not tell.

    Source: GET /info, GenericResources.
    """
    for path in sockets(daemon, settings):
        try:
            listed = _get(path, "/info").get("GenericResources") or []
            named = [each["NamedResourceSpec"] for each in listed if "NamedResourceSpec" in each]
            return [f"{each['Kind']}={each['Value']}" for each in named]
        except (*_SILENCE, KeyError, TypeError, AttributeError):
            continue
    return None


def now(daemon: Daemon, settings: dict[str, Any]) -> Runtimes | None:
    """What a dockerd goes by at this moment; None if it can't be asked."""
    answers = map(ask, sockets(daemon, settings))
    return next((answer for answer in answers if answer is not None), None)


def containers(daemon: Daemon, settings: dict[str, Any], runtime: str) -> list[str] | None:
    """The names of a dockerd's containers, also stopped ones, that were made with `runtime`.

    None if it can't be asked. The list of containers does not have the runtime, so each is
    inspected (GET /containers/json and /containers/ID/json); one that has just gone is left out.
    """
    for path in sockets(daemon, settings):
        try:
            ids = [str(entry["Id"]) for entry in _get(path, "/containers/json?all=1")]
        except (*_SILENCE, KeyError, TypeError):
            continue
        return sorted(filter(None, (_name_if_run_by(path, each, runtime) for each in ids)))
    return None


def knows(path: str, container: str) -> bool:
    """Whether the dockerd at a socket has a container of this id (GET /containers/ID/json)."""
    try:
        return bool(_get(path, f"/containers/{container}/json")["Id"] == container)
    except (*_SILENCE, KeyError, TypeError):
        return False


def stop(path: str, container: str, seconds: int) -> bool:
    """Has a dockerd stop a container (POST /containers/ID/stop), as `docker stop` does.

    By its own stop signal, and by SIGKILL after `seconds`; its restart policy does not start it
    again. False if dockerd does not say that this was done.
    """
    connection = _UnixConnection(path, seconds + _STOP_SECONDS)
    try:
        connection.request("POST", f"/containers/{container}/stop?t={seconds}")
        # 304: it was stopped before.
        return connection.getresponse().status in (204, 304)
    except _SILENCE:
        return False
    finally:
        connection.close()


def _name_if_run_by(path: str, container: str, runtime: str) -> str:
    try:
        data = _get(path, f"/containers/{container}/json")
        return str(data["Name"]).lstrip("/") if data["HostConfig"]["Runtime"] == runtime else ""
    except (*_SILENCE, KeyError, TypeError):
        return ""


def _get(path: str, target: str) -> Any:
    """The JSON that the dockerd at a socket answers; raises one of _SILENCE if it does not."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", target)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def wait_until(
    daemon: Daemon, settings: dict[str, Any], holds: Callable[[Runtimes], bool]
) -> bool | None:
    """Whether a dockerd comes to go by what is expected; None if it can't be asked.

    It reloads when it gets round to it, so it is asked for some seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        answers = [answer for answer in map(ask, sockets(daemon, settings)) if answer is not None]
        if any(holds(answer) for answer in answers):
            return True
        if time.monotonic() > deadline or not answers:
            return False if answers else None
        time.sleep(_PAUSE)
