"""Callers of every kind get their GPUs, and what they hand on reaches the container unaltered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Bundle, Runtime
from tests.harness.machine import Machine
from tests.harness.seen import CONTROL, NODES, devices, outcomes, probe, variables

pytestmark = pytest.mark.e2e

MakeBundle = Callable[..., Bundle]

ASKS = ["NVIDIA_VISIBLE_DEVICES=1,3"]


def run(machine: Machine, runtime: Runtime, bundle: Bundle, script: str) -> Any:
    """Runs a container by a script of the shell, for which $G stands for gpushim and its root."""
    runtime._ids.append(bundle.id)
    script = script.replace("$G", f"{machine.launcher} --root {runtime.root}")
    return subprocess.run(
        ["/bin/sh", "-c", script.replace("$B", f"--bundle {bundle.path} {bundle.id}")],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=60,
    )


@pytest.mark.parametrize(
    "script",
    [
        "umask 0777; exec $G run $B",
        "umask 0; exec $G run $B",
        "exec env -i $G run $B",
        "PATH=; export PATH; exec $G run $B",
        "exec $G run $B <&- 2>&-",
        "ulimit -v 4000000; exec $G run $B",
        "cd /proc/self; exec $G --debug=false run --no-new-keyring $B",
        "trap '' PIPE XFSZ HUP INT; exec $G run $B",
        "LC_ALL=tr_TR.UTF-8 LANG=x PYTHONPATH=/x PYTHONHOME=/x exec $G run $B",
    ],
)
@pytest.mark.parametrize("kept", [True, False], ids=["snapshot", "refresh"])
def test_callers(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle, script: str, kept: bool
) -> None:
    """Also where the inventory has to be found out first."""
    if not kept:
        dgx.forget()
    look = probe(["open", *NODES], ["dlopen", "libcuda.so.1"])
    bundle = make_bundle("debian", look, env=ASKS)
    done = run(dgx, gpushim, bundle, script)
    assert done.returncode == 0, done.stderr
    assert devices(done.stdout).keys() == {*CONTROL, dgx.node(1), dgx.node(3)}
    assert outcomes(done.stdout)["libcuda.so.1"].startswith("/usr/local/nvidia/")
    places = dgx.places
    modes = {path: os.stat(path).st_mode & 0o777 for path in (places.run, places.snapshot)}
    assert modes == {places.run: 0o755, places.snapshot: 0o644}


def test_a_user_namespace_under_a_strict_umask(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """What create makes is readable for the container's own root user."""
    dgx.forget()
    bundle = make_bundle("debian", probe(["dlopen", "libcuda.so.1"]), env=ASKS, userns=True)
    done = run(dgx, gpushim, bundle, "umask 0777; exec $G run $B")
    assert "libcuda.so.1 -> /usr/local/nvidia" in done.stdout, done.stderr


def test_descriptors_and_environment_reach_the_container(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """B26: LISTEN_FDS with its pid, and descriptors that are to be preserved."""
    words = ["sh", "-c", "echo $LISTEN_FDS $LISTEN_PID; cat <&3"]
    bundle = make_bundle("busybox", words, env=ASKS)
    given = gpushim.directory / "given"
    given.write_text("from the caller\n")
    done = run(dgx, gpushim, bundle, f"export LISTEN_FDS=1 LISTEN_PID=$$; exec $G run $B 3<{given}")
    assert done.stdout == "1 1\nfrom the caller\n"
    words = ["sh", "-c", "cat <&4; ls /proc/self/fd | wc -l"]
    bundle = make_bundle("busybox", words, env=ASKS)
    script = f"exec 3</dev/null 4<{given}; exec $G run --preserve-fds 2 $B"
    # ls has its own, that of the directory, too.
    assert run(dgx, gpushim, bundle, script).stdout == "from the caller\n6\n"


def test_signals_that_the_caller_ignores(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """Python ignores SIGPIPE and SIGXFSZ; a container's processes ignore what they always do."""
    ignored = []
    for asked in ([], ASKS):
        for trap in ("", "trap '' PIPE TERM; "):
            bundle = make_bundle("busybox", ["grep", "SigIgn", "/proc/self/status"], env=asked)
            ignored.append(run(dgx, gpushim, bundle, trap + "exec $G run $B").stdout)
    assert ignored[:2] == ignored[2:]


def test_exit_statuses_and_signals(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    bundle = make_bundle("busybox", probe(["exit", "42"]), env=ASKS)
    assert gpushim.run(bundle).status == 42
    bundle = make_bundle("busybox", ["sh", "-c", "kill -9 $$"], env=ASKS)
    bundle.config["linux"]["namespaces"].remove({"type": "pid"})
    bundle.write()
    assert gpushim.run(bundle).status == 128 + signal.SIGKILL


def test_bytes_that_are_no_utf8_and_lone_surrogates(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """B16: they reach config.json as they were, and the container gets its GPUs."""
    bundle = make_bundle("busybox", probe(["env"]), env=[*ASKS, "RAW=RAW", "ESC=ESC"])
    text = json.dumps(bundle.config).encode()
    text = text.replace(b"RAW=RAW", b"RAW=\xe9").replace(b"ESC=ESC", b"ESC=\\ud800x")
    bundle.config_path.write_bytes(text)
    seen = gpushim.run(bundle).check().stdout
    assert variables(seen)["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(1, 3)
    written = bundle.config_path.read_bytes()
    assert b'"RAW=\xe9"' in written
    assert b'"ESC=\\ud800x"' in written
    for line in dgx.installed.log.splitlines():
        json.loads(line.encode("utf-8"))


def test_a_large_environment(dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle) -> None:
    """B17: thousands of variables pass; one that is too long is the kernel's to refuse."""
    many = [f"VARIABLE_{number}=x" for number in range(5000)]
    bundle = make_bundle("busybox", probe(["env"]), env=[*many, *ASKS])
    seen = variables(gpushim.run(bundle).check().stdout)
    assert seen["NVIDIA_VISIBLE_DEVICES"] == dgx.uuids(1, 3)
    assert seen["VARIABLE_4999"] == "x"
    bundle = make_bundle("busybox", probe(["env"]), env=["LONG=" + "x" * 200_000, *ASKS])
    result = gpushim.run(bundle)
    assert result.status != 0
    assert "argument list too long" in result.stderr
    assert "gpushim" not in result.stderr.replace(str(Path(gpushim.directory).parent), "")


def test_other_spellings_of_the_runtime_root(
    dgx: Machine, gpushim: Runtime, make_bundle: MakeBundle
) -> None:
    """B23: an exec that names the same root by a link, or relative to another cwd, finds it."""
    bundle = make_bundle("busybox", probe(["sleep", "100"]), env=ASKS)
    gpushim.create(bundle).check()
    gpushim.start(bundle.id).check()
    link = gpushim.directory / "link"
    link.symlink_to(gpushim.root)
    file = gpushim.directory / "process.json"
    content = {**bundle.config["process"], "args": probe(["env"]), "env": []}
    for root, cwd in ((str(link), "/"), ("root", gpushim.directory), ("./link/", link.parent)):
        file.write_text(json.dumps(content))
        done = subprocess.run(
            [dgx.launcher, "--root", root, "exec", "--process", file, bundle.id],
            cwd=cwd,
            capture_output=True,
            text=True,
        )
        assert variables(done.stdout).get("NVIDIA_VISIBLE_DEVICES") == dgx.uuids(1, 3), done
