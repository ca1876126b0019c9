"""The launcher's reading of a command line and gpushim.oci.invocation's, which must be the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gpushim.oci.invocation import COMMAND_VALUES, GLOBAL_VALUES, parse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import cannot
from tests.unit.launcher.rendered import TEMPLATE, Launcher

TRIGGER = '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}}'
PLAIN = '{"process":{"env":["A=b"]}}'

DOCKER = ["--root", "R", "--log", "L", "--log-format", "json"]

# Command line (B is a bundle with a request, P one without, R a process file, H where there is no
# config.json) and whether Python has to see it.
LINES: list[tuple[list[str], bool]] = [
    (["create", "--bundle", "B", "c1"], True),
    (["create", "--bundle", "P", "c1"], False),
    (["create", "--bundle", "H", "c1"], False),
    (["create", "--bundle=B", "c1"], True),
    (["create", "-bundle", "B", "c1"], True),
    (["create", "-bundle=B", "c1"], True),
    (["create", "-b", "B", "c1"], True),
    (["create", "-b=B", "c1"], True),
    (["create", "-bB", "c1"], True),  # crun: B is absolute
    (["create", "c1", "-b", "B"], True),
    (["create", "c1", "--bundle", "B", "--pid-file", "p"], True),
    (["create", "--pid-file", "p", "--bundle", "B", "c1"], True),
    (["create", "--pid-file", "--bundle", "B", "c1"], False),
    (["create", "--preserve-fds", "3", "-b", "B", "c1"], True),
    (["create", "--console-socket", "/s", "-b", "B", "c1"], True),
    (["create", "--pidfd-socket", "/s", "-b", "B", "c1"], True),
    (["create", "-b", "P", "-b", "B", "c1"], True),
    (["create", "-b", "B", "-b", "P", "c1"], False),
    (["create", "--no-pivot", "-b", "B", "c1"], True),
    (["create", "-b", "B", "create"], True),
    (["create", "--", "-b", "B"], False),
    (["--", "create", "-b", "B", "c1"], True),
    (["create", "c1", "--bundle"], False),
    (["run", "-b", "B", "c1"], True),
    (["run", "--detach", "--keep", "-b", "B", "c1"], True),
    (["--log", "x", "--log-format", "json", "create", "-b", "B", "c1"], True),
    (["--log=x", "--log-format=json", "create", "-b", "B", "c1"], True),
    (["--systemd-cgroup", "create", "-b", "B", "c1"], True),
    (["--rootless=true", "--debug", "create", "-b", "B", "c1"], True),
    (["--rootless", "true", "create", "-b", "B", "c1"], True),
    (["--criu", "create", "create", "-b", "B", "c1"], True),
    (["--cgroup-manager", "disabled", "create", "-b", "B", "c1"], True),
    # As Docker writes it, and what only looks like that.
    ([*DOCKER, "create", "--bundle", "B", "--pid-file", "p", "c1"], True),
    ([*DOCKER, "create", "--bundle", "P", "--pid-file", "p", "c1"], False),
    ([*DOCKER, "create", "--bundle", "P", "--pid-file", "p", "--bundle=B"], True),
    ([*DOCKER, "create", "--bundle", "P", "--pid-file", "p", "c1", "--bundle", "B"], True),
    ([*DOCKER, "create", "--bundle", "B", "--pid-file", "--", "c1"], True),
    (["--root", "create", "state", "x"], False),
    (["--root=create", "state", "x"], False),
    (["-root", "X", "create", "-b", "B", "c1"], True),
    (["-root=X", "create", "-b", "B", "c1"], True),
    (["--log", "create", "state", "-b", "B", "x"], False),
    (["--unknown", "create", "-b", "B", "c1"], True),
    (["--unknown", "-b", "B", "create"], False),
    (["--bundle", "create"], False),
    (["start", "create"], False),
    (["delete", "--force", "create"], False),
    (["state", "--bundle", "B", "create"], False),
    (["exec", "c1", "create", "--bundle", "B"], False),
    (["exec", "-e", "A=b", "-u", "0", "c1", "sh", "-c", "create"], False),
    (["exec", "c1", "prog", "--process", "R"], False),
    (["exec", "--process", "R", "other"], False),
    (["exec", "--process", "R", "granted"], True),
    (["exec", "-p", "R", "--tty", "--detach", "granted"], True),
    (["exec", "--process=R", "granted"], True),
    (["exec", "--cwd", "/", "--process", "R", "granted", "--process", "x"], True),
    (["exec", "granted", "sh"], False),
    (["restore", "--bundle", "B", "c1"], False),
    (["spec", "--bundle", "B"], False),
    (["checkpoint", "--image-path", "create", "c1"], False),
    (["features"], False),
    (["--version"], False),
    (["-v"], False),
    (["--help"], False),
    (["help", "create"], False),
    (["-"], False),
    (["", "create"], False),
    ([], False),
]


@pytest.mark.parametrize(("line", "wanted"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_python_starts_only_for_what_may_need_it(
    launcher: Launcher, tmp_path: Path, line: list[str], wanted: bool
) -> None:
    """B19, B21, B24, B27: what the launcher does with the command line, and what is handed on."""
    launcher.stub_python().install()
    places = {"B": tmp_path / "b", "P": tmp_path / "p", "H": tmp_path / "h", "R": tmp_path / "r"}
    for name in "BPH":
        places[name].mkdir()
    (places["B"] / "config.json").write_text(TRIGGER)
    (places["P"] / "config.json").write_text(PLAIN)
    (launcher.containers / "granted").mkdir(parents=True)
    (tmp_path / "cwd").mkdir()

    def place(word: str) -> str:
        head, letter = word[:-1], word[-1:]
        if letter in places and (head in ("", "-b") or head.endswith("=")):
            return head + str(places[letter])
        return word

    given_line = [place(word) for word in line]
    done = launcher.call(*given_line, cwd=tmp_path / "cwd")
    assert done.returncode == 0, done.stderr
    python, runtime = launcher.python_started(), launcher.reached()
    assert (python is not None, runtime is not None) == (wanted, not wanted)
    given_bytes = [os.fsencode(word) for word in given_line]
    if runtime is not None:
        assert runtime.arguments == [os.fsencode(launcher.low_level), *given_bytes]
    elif python is not None:
        end = len(python.arguments) - len(given_bytes)
        assert python.arguments[end:] == given_bytes
        parsed = parse(given_line)
        if parsed.command == "exec":
            assert (parsed.process, parsed.container_id) == (str(places["R"]), "granted")
        else:
            assert parsed.bundle == str(places["B"])


def test_the_bundle_is_the_current_directory_without_the_option(
    launcher: Launcher, tmp_path: Path
) -> None:
    """B24."""
    launcher.stub_python().install()
    (tmp_path / "config.json").write_text(TRIGGER)
    assert launcher.call("create", "c1", cwd=tmp_path).returncode == 0
    assert launcher.python_started()


def test_another_name_for_the_spec(launcher: Launcher, tmp_path: Path) -> None:
    """crun's --config is relative to the bundle, or a path of its own."""
    launcher.stub_python().install()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "other.json").write_text(TRIGGER)
    for name in ("other.json", str(tmp_path / "b" / "other.json"), "../b/other.json"):
        launcher.call("create", "-b", tmp_path / "b", "-f", name, "c1")
        assert launcher.python_started(), name
    launcher.call("create", "-b", tmp_path / "b", "--config=missing.json", "c1")
    assert launcher.reached()


@pytest.mark.parametrize(
    "name", ["a b", "a'b", 'a"b', "a\nb", "$HOME", "-a", "a\\nb", "*", "b\udce9", "ä"]
)
def test_odd_names_of_bundles(launcher: Launcher, tmp_path: Path, name: str) -> None:
    launcher.stub_python().install()
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(TRIGGER)
    launcher.call("create", "--bundle", tmp_path / name, "c1")
    assert launcher.python_started()
    launcher.call("create", f"--bundle={name}", "c1", cwd=tmp_path)
    assert launcher.python_started()


def test_a_spec_from_a_pipe_is_left_in_it(launcher: Launcher, tmp_path: Path) -> None:
    """crun's --config may name a pipe, and what is read from it is gone."""
    launcher.stub_python().install()
    reader, writer = os.pipe()
    os.write(writer, TRIGGER.encode())
    os.close(writer)
    launcher.call("create", "-b", tmp_path, "-f", f"/dev/fd/{reader}", "c1", pass_fds=[reader])
    assert launcher.reached()
    assert os.read(reader, 4096) == TRIGGER.encode()
    os.close(reader)


# The launcher's option loop on its own, and what it found.
_LOOP = re.search(r"(?ms)^_command=''.*?^done$", TEMPLATE.read_text())
assert _LOOP
_NAMES = ("command", "container", "bundle", "spec", "process", "state_root", "log", "log_format")
_SCRIPT = f"{_LOOP.group(0)}\nprintf '%s\\0' " + " ".join(f'"$_{name}"' for name in _NAMES)


def sh_parse(arguments: list[str], shell: str = "sh") -> list[str]:
    done = subprocess.run(
        [*shell.split(), "-c", _SCRIPT, "sh", *arguments], capture_output=True, check=True
    )
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def python_parse(arguments: list[str]) -> list[str]:
    found = parse(arguments)
    if found.command not in COMMAND_VALUES:
        # Neither of the two looks further, but both know what came before the command.
        assert found.container_id == ""
    return [
        found.command,
        found.container_id,
        found.bundle or ".",
        found.config or "config.json",
        found.process,
        found.root,
        found.log,
        found.log_format,
    ]


_OPTIONS = sorted({*GLOBAL_VALUES, *(name for names in COMMAND_VALUES.values() for name in names)})
_word = st.one_of(
    st.sampled_from(["create", "run", "restore", "exec", "state", "c1", "--", "-", "", "x y", "*"]),
    st.builds(
        lambda dashes, name, value: dashes + name + value,
        st.sampled_from(["-", "--", "---"]),
        st.sampled_from([*_OPTIONS, "unknown", "debug", "b/dir", "tty", "systemd-cgroup"]),
        st.sampled_from(["", "", "", "=", "=v", "=a=b", "='$x\\"]),
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(["---b", "create"])
@example(["create", "--bundle", "--", "c1", "-b", "x"])
@example(["create", "-b", "x", "c1", "-b"])
@example(["create", "-b/a=b", "c1"])
@example(["exec", "--", "-c1", "--process", "x"])
@example(["create", "", "c1"])
@given(st.lists(_word, max_size=8))
def test_both_readers_agree(arguments: list[str]) -> None:
    found = sh_parse(arguments)
    if found[3] == "":
        found[3] = "config.json"  # an empty --config, which Python takes for none
    assert found == python_parse(arguments)


@pytest.mark.parametrize("shell", ["dash", "bash --posix", "busybox sh"])
def test_the_shells_of_distributions_agree(shell: str) -> None:
    if shutil.which(shell.split(maxsplit=1)[0]) is None:
        cannot(f"{shell} is not installed")
    for line, _ in LINES:
        assert sh_parse(line, shell) == sh_parse(line, "sh")


def value_options(runtime: str, command: str) -> set[str]:
    """The options with a value that a runtime's own help names."""
    words = [runtime, *([command] if command else []), "--help"]
    text = subprocess.run(words, capture_output=True, text=True).stdout
    found: set[str] = set()
    for line in text.splitlines():
        if re.match(r"\s+-", line) is None:
            continue
        # runc: "--bundle value, -b value  text"; crun: "-b, --bundle=DIR  text", and [=X] is none.
        usage = re.split(r"\s{2,}", line.strip())[0]
        if re.search(r"(?<!\[)=[A-Z]| value\b", usage):
            found.update(re.findall(r"(?:^|[\s,])--?([A-Za-z][\w-]*)", usage))
    return found


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("command", ["", *COMMAND_VALUES])
def test_the_lists_hold_all_that_the_runtimes_help_names(runtime: str, command: str) -> None:
    """A new runtime's option that takes a value has to be in both lists."""
    if shutil.which(runtime) is None:
        cannot(f"{runtime} is not installed")
    known = set(COMMAND_VALUES[command] if command else GLOBAL_VALUES)
    found = value_options(runtime, command)
    if (runtime, command) != ("crun", "restore"):  # only a crun that was built with CRIU has it
        assert found, "the help text could not be read"
    assert found <= known


def test_the_two_lists_are_one() -> None:
    text = TEMPLATE.read_text()
    for command, names in (("", GLOBAL_VALUES), *COMMAND_VALUES.items()):
        assert _LOOP
        listed = re.search(r"(?s):root \|.*?\)", text)
        assert listed
        words = re.findall(r"([a-z]*):([\w-]+)", listed.group(0).replace("\\\n", " "))
        if command == "":
            short = re.findall(r"\| :([\w-]+)|^:([\w-]+)", listed.group(0))
            found = {a or b for a, b in short}
        else:
            found = {name for owner, name in words if owner == command}
        assert found == set(names), command
