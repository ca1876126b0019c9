"""What reaches the low-level runtime is what the launcher was given: arguments, environment,
descriptors, directory, process id, signal dispositions; and its exit status comes back.

Known and accepted, since a POSIX shell can't do otherwise: dash adds PWD where the environment has
none (bash SHLVL, OLDPWD and _, too), gives IFS, OPTIND and PPID its own values, drops variables
whose names are no shell names and those given twice, and gives SIGCHLD its default.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.rendered import Dump, Launcher

TRIGGER = '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=%s"]}}'


@pytest.fixture(params=["state", "plain create", "create by Python", "exec by Python"])
def line(request: pytest.FixtureRequest, launcher: Launcher, tmp_path: Path) -> list[str]:
    """Command lines of all ways: at once, after grep, and through Python.

    Python finds no request in the spec ("void") and no record of the container, and hands on as
    it does after a change.
    """
    launcher.install()
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    if request.param == "state":
        return ["--root", "/r", "state", "c1"]
    if request.param == "exec by Python":
        (launcher.containers / "c1").mkdir(parents=True)
        return ["--root", "/r", "exec", "--process", str(bundle / "process"), "c1"]
    text = TRIGGER % "void" if request.param == "create by Python" else "{}"
    (bundle / "config.json").write_text(text)
    return ["create", "--bundle", str(bundle), "c1"]


def reached(launcher: Launcher) -> Dump:
    dump = launcher.reached()
    assert dump is not None
    return dump


def test_arguments(launcher: Launcher, line: list[str]) -> None:
    odd = ["", " ", "a b", "*", "$HOME", "`x`", "a\nb", "\udce9", "ä", "'", '"', "\\", "-", "--"]
    assert launcher.call(*line, *odd).returncode == 0
    assert reached(launcher).arguments == [
        os.fsencode(word) for word in [str(launcher.low_level), *line, *odd]
    ]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"LISTEN_FDS": "1", "LISTEN_PID": "7", "NOTIFY_SOCKET": "/run/n"},
        {"LC_CTYPE": "de_DE.ISO-8859-1"},
        {"LC_CTYPE": ""},
        {"LC_ALL": "C"},
        {"LANG": "C.UTF-8"},
        {"PATH": "/nowhere"},
        {"XDG_RUNTIME_DIR": "/run/user/0", "HOME": "/root"},
        {"ENV": "/nowhere", "PS1": "x", "PYTHONPATH": "/x", "PYTHONHOME": "/y"},
        {"PYTHONUTF8": "0", "PYTHONSTARTUP": "/x", "PYTHONVERBOSE": "1"},
        {"A": "", "B": "x=y\n'\"", "C": "\udce9"},
        # Names that a script might use for itself.
        dict.fromkeys(("root", "log", "code", "value", "text", "time", "command"), "given"),
        dict.fromkeys(("bundle", "config", "option", "python", "name", "stat"), "given"),
    ],
    ids=lambda more: " ".join(more) or "nothing",
)
def test_environment(launcher: Launcher, line: list[str], more: dict[str, str]) -> None:
    """B17, B26: nothing is added, altered or lost on any of the ways."""
    environment = {"PATH": os.environ["PATH"], "PWD": os.getcwd(), **more}
    done = launcher.call(*line, environment=environment)
    assert done.returncode == 0, done.stderr
    found = reached(launcher).environment
    assert found == {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}


def test_an_empty_environment(launcher: Launcher, line: list[str]) -> None:
    assert launcher.call(*line, environment={}).returncode == 0
    found = reached(launcher).environment
    # bash as /bin/sh adds the last three.
    assert found.keys() <= {b"PWD", b"SHLVL", b"OLDPWD", b"_"}


def test_a_large_environment(launcher: Launcher, line: list[str]) -> None:
    """B17."""
    environment = {"PWD": os.getcwd(), **{f"V{n}": "x" * 20 for n in range(5000)}}
    environment["LONG"] = "y" * 100_000
    assert launcher.call(*line, environment=environment).returncode == 0
    assert len(reached(launcher).environment) == len(environment)


def test_directory(launcher: Launcher, line: list[str], tmp_path: Path) -> None:
    (tmp_path / "a b\n").mkdir()
    launcher.call(*line, cwd=tmp_path / "a b\n")
    assert reached(launcher).cwd == os.fsencode(tmp_path / "a b\n")


def test_descriptors(launcher: Launcher, line: list[str], tmp_path: Path) -> None:
    """B26: inherited ones stay, high ones too, and none is added."""
    numbers = {3, 4, 9, 10, 11, 12, 99, 255, 900}
    base = os.open(tmp_path, os.O_RDONLY)
    high = fcntl.fcntl(base, fcntl.F_DUPFD_CLOEXEC, 1000)
    pid = os.fork()
    if pid == 0:
        try:
            for number in range(3, 1000):
                try:
                    os.close(number)
                except OSError:
                    pass
            for number in numbers:
                os.dup2(high, number, inheritable=True)
            os.execv(launcher.program, [str(launcher.program), *line])
        finally:
            os._exit(97)
    os.close(high)
    os.close(base)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert reached(launcher).descriptors == {0, 1, 2, *numbers}


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_descriptors(
    launcher: Launcher, line: list[str], closed: tuple[int, ...]
) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            for number in closed:
                os.close(number)
            os.execv(launcher.program, [str(launcher.program), *line])
        finally:
            os._exit(97)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not reached(launcher).descriptors & set(closed)


def test_process_id_and_exit_status(launcher: Launcher, line: list[str]) -> None:
    """The process is the caller's child until the end, so LISTEN_PID stays right (B26)."""
    for status in (0, 1, 2, 127, 255):
        Path(f"{launcher.low_level}.exit").write_text(str(status))
        launcher.forget()
        process = subprocess.Popen([str(launcher.program), *line])
        assert process.wait(timeout=60) == status
        facts = reached(launcher).facts
        assert facts["pid"] == str(process.pid)
        assert facts["ppid"] == str(os.getpid())


SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("ignored", [True, False])
def test_signal_dispositions(launcher: Launcher, line: list[str], ignored: bool) -> None:
    """Python ignores SIGPIPE and SIGXFSZ, which must not be seen behind it."""

    def prepare() -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)

    done: Any = launcher.call(*line, preexec_fn=prepare, restore_signals=False)
    assert done.returncode == 0
    dump = reached(launcher)
    assert [dump.ignores(number) for number in SIGNALS] == [ignored] * len(SIGNALS)
    assert int(dump.status["SigCgt"], 16) == 0


def test_limits_umask_and_niceness(launcher: Launcher, line: list[str]) -> None:
    def prepare() -> None:
        os.umask(0o057)
        os.nice(3)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))

    launcher.call(*line, preexec_fn=prepare)
    dump = reached(launcher)
    assert (dump.facts["umask"], dump.facts["nice"]) == ("57", str(os.nice(0) + 3))
    assert b"Max open files            200                  300 " in dump.limits
