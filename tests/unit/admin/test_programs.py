"""The texts that install writes: nothing in a path can break out of its place in them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from gpushim.admin import programs
from gpushim.errors import GpushimError
from gpushim.places import Places

SETTINGS = {"low_level": "/usr/sbin/runc", "low_level_family": "runc", "other_low_level": ""}
CODE = str(Path(programs.__file__).parents[2])
ODD = '/a b/it\'s $(touch /tmp/x) `x` \\ "q"'


def test_each_value_is_one_word_for_the_shell() -> None:
    text = programs.fill_in("a=@A@\nb=@B_C@\n", {"A": ODD, "B_C": ""})
    command = ["sh", "-euc", text + 'printf "%s|%s" "$a" "$b"']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{ODD}|"


def test_a_value_is_never_filled_in_again() -> None:
    assert programs.fill_in("@A@", {"A": "@B@"}) == "'@B@'"


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(GpushimError, match="NEWER_THING"):
        programs.fill_in("x=@NEWER_THING@", {})


def test_the_launcher_has_all_its_values() -> None:
    places = Places("/a root's")
    template = Path(CODE, "gpushim/launcher.sh").read_text()
    variables = dict(re.findall(r"\b(\w+)=@(\w+)@", template))
    assert len(variables) >= 10
    text = programs.launcher(places, "/usr/bin/python3", CODE, "/venv/bin/python", SETTINGS)
    header = text[: text.index("# shellcheck disable=SC3013")]
    shown = "".join(f'printf "%s\\n" "${name}"\n' for name in variables)
    done = subprocess.run(["sh", "-euc", header + shown], capture_output=True, text=True)
    values = dict(zip(variables.values(), done.stdout.splitlines(), strict=True))
    assert values == {
        "ROOT": "/a root's",
        "PYTHON": "/usr/bin/python3",
        "CODE": CODE,
        "REFRESH_PYTHON": "/venv/bin/python",
        "LOW_LEVEL": "/usr/sbin/runc",
        "LOW_LEVEL_FAMILY": "runc",
        "OTHER_LOW_LEVEL": "",
        "CONTAINERS": places.containers,
        "SETTINGS": places.launcher_settings,
        "CONFIG": places.config,
    }
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0


def test_the_launcher_is_known_as_such_within_its_first_bytes() -> None:
    """The low-level runtime is searched with this mark, so that it is never gpushim itself."""
    from gpushim.lowlevel import LAUNCHER_MARK

    text = programs.launcher(Places(), "/p" * 200, CODE, "/r", SETTINGS)
    assert LAUNCHER_MARK in text.encode()[:512]


def test_gpushimctl_links_to_the_environment_or_wraps_it(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    assert programs.control_link(Places(), str(python)) == ""
    script = tmp_path / "bin/gpushimctl"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert programs.control_link(Places(), str(python)) == str(script)
    assert programs.control_link(Places("/private"), str(python)) == ""


def test_the_wrapper_tells_its_root(tmp_path: Path) -> None:
    python = tmp_path / "it's python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    text = programs.control_wrapper(Places("/a root"), str(python))
    wrapper = tmp_path / "gpushimctl"
    wrapper.write_text(text)
    done = subprocess.run(["sh", str(wrapper), "x y", "z"], capture_output=True, text=True)
    expected = ["-I", "-m", "gpushim.admin.cli", "--root", "/a root", "x y", "z"]
    assert done.stdout.splitlines() == expected
    assert "--root" not in programs.control_wrapper(Places(), str(python))
