"""Which program gpushim hands over to, and what the launcher is told of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpushim import launcher_settings, lowlevel
from gpushim.errors import GpushimError
from gpushim.places import Places
from hypothesis import given
from hypothesis import strategies as st


def program(path: Path, text: str = "#!/bin/sh\nexit 0\n", mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture(autouse=True)
def no_system_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own runc must not answer for the one of a test."""
    monkeypatch.setattr(lowlevel, "DIRECTORIES", ())


def find(names: list[str], *directories: Path, launcher: str = "/nonexistent") -> list[str]:
    return lowlevel.find(names, ":".join(map(str, directories)), launcher)


def test_names_in_their_order_over_path_in_its_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    crun, other, runc = program(a / "crun"), program(b / "crun"), program(b / "runc")
    assert find(["runc", "crun"], a, b) == [runc, crun, other]
    assert find(["crun", "runc"], b, a) == [other, crun, runc]


def test_places_beside_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B68: PATH is empty, and the only runtime is in a libexec directory."""
    crun = program(tmp_path / "libexec/crio/crun")
    monkeypatch.setattr(lowlevel, "DIRECTORIES", (str(tmp_path / "libexec/crio"),))
    assert find(["runc", "crun"]) == [crun]
    runc = program(tmp_path / "sbin/runc")
    assert find(["runc", "crun"], tmp_path / "sbin") == [runc, crun]


def test_an_absolute_path_is_taken_as_it_is(tmp_path: Path) -> None:
    """B68: with two of them, a profile may confine one path and not the other."""
    real = program(tmp_path / "sbin/runc")
    link = tmp_path / "bin/runc"
    link.parent.mkdir()
    link.symlink_to(real)
    assert find([str(link)]) == [str(link)]
    # The same program under another name is no second choice.
    assert find([str(link), str(real)]) == [str(link)]


def test_relative_directories_on_path_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "runc")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpushimError):
        lowlevel.find(["runc"], "::.", "/nonexistent")


@pytest.mark.parametrize("kind", ["link", "hard link", "copy", "link to a copy"])
def test_never_gpushim_itself(tmp_path: Path, kind: str) -> None:
    template = Path(lowlevel.__file__).parent / "launcher.sh"
    launcher = Path(program(tmp_path / "bin/gpushim", template.read_text()))
    runc = tmp_path / "first/runc"
    runc.parent.mkdir()
    if kind == "link":
        runc.symlink_to(launcher)
    elif kind == "hard link":
        os.link(launcher, runc)
    else:
        shutil.copy(launcher, runc if kind == "copy" else tmp_path / "other-name")
        if kind == "link to a copy":
            runc.symlink_to(tmp_path / "other-name")
    real = program(tmp_path / "second/runc")
    assert find(["runc"], runc.parent, tmp_path / "second", launcher=str(launcher)) == [real]
    with pytest.raises(GpushimError, match="is gpushim itself"):
        find(["runc"], runc.parent, launcher=str(launcher))


@pytest.mark.parametrize(
    "name",
    ["nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.x"],
)
@pytest.mark.parametrize("linked", [False, True])
def test_never_the_vendors_runtime(tmp_path: Path, name: str, linked: bool) -> None:
    path = Path(program(tmp_path / name))
    if linked:
        path = tmp_path / "runc"
        path.symlink_to(tmp_path / name)
    with pytest.raises(GpushimError, match="vendor's runtime"):
        find([str(path)])


def test_what_is_no_program_is_refused_with_its_reason(tmp_path: Path) -> None:
    """B67: a directory, a FIFO, a file without the x bit, a link that leads nowhere."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    program(tmp_path / "plain", mode=0o644)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    names = [str(tmp_path / n) for n in ("directory", "fifo", "plain", "dangling", "loop")]
    with pytest.raises(GpushimError) as caught:
        find([*names, "runc"])
    sentence = caught.value.sentence
    assert "directory is not a regular file" in sentence
    assert "fifo is not a regular file" in sentence
    assert "plain is not executable" in sentence
    assert "dangling does not exist" in sentence
    assert "loop: a part of its path is a symbolic link" in sentence
    assert "low-level-runtimes" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "version", "family"),
    [
        ("runc", "runc version 1.1.5", "runc"),
        ("crun", "crun version 1.8.1", "crun"),
        ("runc", "crun version 1.8.1\ncommit: x", "crun"),
        ("docker-runc", "", "runc"),
        ("crun-wasm", "", "crun"),
        ("something", "", "runc"),
    ],
)
def test_family(tmp_path: Path, name: str, version: str, family: str) -> None:
    path = program(tmp_path / name, f"#!/bin/sh\n[ $1 = --version ] && echo '{version}'\n")
    assert lowlevel.family(path) == family


def test_a_runtime_that_hangs_does_not_hang_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowlevel, "_VERSION_TIMEOUT", 0.2)
    assert lowlevel.version(program(tmp_path / "runc", "#!/bin/sh\nexec sleep 60\n")) == ""


class Installation:
    """A root with runtimes of its own, named by their absolute paths in the configuration."""

    def __init__(self, root: Path) -> None:
        self.places = Places(str(root))
        for directory in (self.places.etc, self.places.lib, self.places.bin):
            os.makedirs(directory)
        self.runc = program(root / "it's/runc", "#!/bin/sh\necho runc version 1\n")
        self.crun = program(root / "opt/crun", "#!/bin/sh\necho crun version 1\n")

    def configure(self, text: str, time: int = 1_700_000_000_123_456_789) -> None:
        Path(self.places.config).write_text(text)
        os.utime(self.places.config, ns=(time, time))

    def write(self) -> list[str]:
        return launcher_settings.write(self.places, "")

    def as_the_shell_reads_them(self) -> list[str]:
        script = '. "$1"; printf "%s\\n" "$low_level" "$other_low_level" "$low_level_family"'
        command = ["sh", "-eu", "-c", script, "sh", self.places.launcher_settings]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
            "\n"
        )[:3]

    @property
    def time(self) -> int:
        return os.stat(self.places.launcher_settings).st_mtime_ns


@pytest.fixture
def installed(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def both(installed: Installation) -> str:
    return f'[runtime]\nlow-level-runtimes = ["{installed.runc}", "{installed.crun}"]\n'


def test_settings_are_what_the_shell_reads(installed: Installation) -> None:
    installed.configure(both(installed))
    assert installed.write() == []
    assert installed.as_the_shell_reads_them() == [installed.runc, installed.crun, "runc"]
    assert os.stat(installed.places.launcher_settings).st_mode & 0o7777 == 0o644
    assert installed.time == 1_700_000_000_123_456_789


def test_settings_without_another_family(installed: Installation) -> None:
    installed.configure(f'[runtime]\nlow-level-runtimes = ["{installed.crun}"]\n')
    installed.write()
    assert installed.as_the_shell_reads_them() == [installed.crun, "", "crun"]


def test_settings_that_are_right_are_left_alone(installed: Installation) -> None:
    installed.configure(both(installed))
    installed.write()
    before = os.stat(installed.places.launcher_settings).st_ino
    installed.write()
    assert os.stat(installed.places.launcher_settings).st_ino == before


@pytest.mark.parametrize("wrong", ["[runtime\n", '[runtime]\nlow-level-runtimes = ["/none"]\n'])
def test_a_wrong_configuration_keeps_what_held(installed: Installation, wrong: str) -> None:
    """Nothing about a broken configuration may stop a container that asks for no GPU."""
    installed.configure(both(installed))
    installed.write()
    installed.configure(wrong, time=42)
    (problem,) = installed.write()
    assert "config.toml" in problem or "/none" in problem
    assert installed.as_the_shell_reads_them() == [installed.runc, installed.crun, "runc"]
    assert installed.time == 42


def test_a_wrong_configuration_from_the_start(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.configure("[runtime\n", time=42)
    with pytest.raises(GpushimError, match="No usable low-level runtime"):
        installed.write()
    monkeypatch.setattr(lowlevel, "DIRECTORIES", (str(tmp_path / "opt"),))
    assert len(installed.write()) == 1
    assert installed.as_the_shell_reads_them() == [installed.crun, "", "crun"]


def test_without_a_configuration_the_time_is_zero(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowlevel, "DIRECTORIES", (str(tmp_path / "opt"),))
    assert installed.write() == []
    assert installed.time == 0


def test_settings_that_can_not_be_written(installed: Installation) -> None:
    installed.configure(both(installed))
    os.rmdir(installed.places.lib)
    with pytest.raises(GpushimError, match="can't be written"):
        installed.write()


def test_the_command_that_the_launcher_runs(installed: Installation) -> None:
    installed.configure(both(installed))
    root = installed.places.root
    source = str(Path(lowlevel.__file__).parents[1])
    specs = str(Path(lowlevel.__file__).parents[2] / "specs")
    command = [sys.executable, "-m", "gpushim.launcher_settings"]
    environment = {"PYTHONPATH": f"{source}:{specs}"}
    done = subprocess.run(
        [*command, "--root", root], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert installed.as_the_shell_reads_them()[0] == installed.runc
    installed.configure("broken")
    done = subprocess.run(
        [*command, "--root", root], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "not valid TOML" in done.stderr
    done = subprocess.run([*command, "--nonsense"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2


@given(st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=20))
def test_quoted_for_the_shell_and_read_again(text: str) -> None:
    settings = {"low_level": text, "other_low_level": "", "low_level_family": "runc"}
    assert launcher_settings.parse(launcher_settings.render(settings)) == settings


@pytest.mark.parametrize("text", ["a b", "it's", '"$(touch x)`x`\\', "*?[a]", "", "ä 日本", "-n"])
def test_the_shell_itself_agrees(text: str) -> None:
    script = f"printf %s {launcher_settings.shell_quote(text)}"
    done = subprocess.run(["sh", "-c", script], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout == text


@pytest.mark.parametrize("text", ["", "x=1\n", "low_level='a\n", "low_level=a\n"])
def test_settings_that_are_none(text: str) -> None:
    assert launcher_settings.parse(text) == {}
