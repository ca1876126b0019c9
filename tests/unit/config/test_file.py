"""Reading the configuration file: what is right, and what is said of what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gpushim import config_file
from gpushim.admin import config_text
from gpushim.config import seconds, size
from gpushim.config_keys import configured, table
from gpushim.config_schema import schema
from gpushim.errors import GpushimError
from gpushim_specs import load
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

ROOT = Path(__file__).resolve().parents[3]


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    made = config_file.read(str(tmp_path / "none.toml"))
    assert made.values == configured().values
    assert set(made.sources.values()) == {"default"}


def test_values_and_their_source(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '\ufeff[host]\nload-driver = false\n[runtime]\nlow-level-runtimes = ["/x/crun"]\n'
    )
    made = config_file.read(str(path))
    assert made.flag("host.load-driver") is False
    assert made.texts("runtime.low-level-runtimes") == ["/x/crun"]
    changed = {name for name, source in made.sources.items() if source != "default"}
    assert changed == {"host.load-driver", "runtime.low-level-runtimes"}
    assert made.sources["host.load-driver"] == str(path)


def test_numbers_and_tables(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[limits]\ncpus-per-gpu = 7.5\npids-per-gpu = 100\nmemory-per-gpu = "8g"\n'
        '[limits.unified]\n"cpu.weight" = 200\n"memory.high" = "8g"\n'
    )
    made = config_file.read(str(path))
    assert made.text("limits.cpus-per-gpu") == "7.5"
    assert made.text("limits.pids-per-gpu") == "100"
    assert made.values["limits.unified"] == {"cpu.weight": "200", "memory.high": "8g"}
    assert config_text.toml(made.values["limits.unified"]) == (
        '{ "cpu.weight" = "200", "memory.high" = "8g" }'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[runtime\n", ["not valid TOML", "line 1", "column 9"]),
        (b"[runtime]\nlog-level = debug\n", ["not valid TOML", "line 2", "column 13"]),
        (b"[host]\n[host]\n", ["not valid TOML", "line 2"]),
        (b"[runtime]\n\xff\n", ["not UTF-8", "line 2"]),
        (b"[" * 20000, ["TOML"]),
        (b"x = " + b"[" * 20000, ["nested too deeply"]),
        (b"[runtim]\n", ["[runtim]", "did you mean runtime?"]),
        (b"[zzz]\n", ["[zzz]", "runtime, host, request, cdi, inject"]),
        (b"[runtime]\nlog-levle = 'info'\n", ["runtime.log-levle", "did you mean log-level?"]),
        (b"[runtime]\nzzz = 1\n", ["runtime.zzz", "low-level-runtimes", "log-max-size"]),
        (b"[host]\nlog-level = 'info'\n", ["belongs into section [runtime]"]),
        (b"log-level = 'info'\n", ["belongs into section [runtime]"]),
        (b"runtime = 1\n", ["[runtime] must be a section"]),
        (b"[runtime]\nlog-level = 'loud'\n", ["'loud'", "debug, info, warning, error"]),
        (b"[runtime]\nlog-level = 3\n", ["runtime.log-level is 3", "one of debug"]),
        (b"[limits]\ncpus-per-gpu = 0\n", ["limits.cpus-per-gpu is 0", "a number above 0"]),
        (b"[limits]\ncpus-per-gpu = inf\n", ["limits.cpus-per-gpu is inf", "a number above 0"]),
        (b"[limits]\ncpus-per-gpu = nan\n", ["limits.cpus-per-gpu is nan", "or empty"]),
        (b"[limits]\ncpus-per-gpu = 'all'\n", ["'all'", "such as 8 or 7.5"]),
        (b"[limits]\ncpus-per-gpu = true\n", ["limits.cpus-per-gpu is True"]),
        (b"[limits]\npids-per-gpu = 1.5\n", ["limits.pids-per-gpu is 1.5", "a whole number"]),
        (b"[limits]\nmemory-per-gpu = '0'\n", ["limits.memory-per-gpu is '0'", "or empty"]),
        (b"[limits.unified]\n'cgroup.procs' = '1'\n", ["limits.unified", "such as memory.high"]),
        (b"[limits.unified]\n'../x' = '1'\n", ["limits.unified", "a table of cgroup files"]),
        (b"[limits.unified]\n'memory.high' = [1]\n", ["limits.unified", "such as memory.high"]),
        (b"[security]\ndrop-capabilities = ['sys']\n", ["'sys'", "such as SYS_PTRACE"]),
        (b"[runtime]\nlow-level-runtimes = []\n", ["at least one"]),
        (b"[runtime]\nlow-level-runtimes = ['./runc']\n", ["'./runc'", "absolute paths"]),
        (b"[runtime]\nlow-level-runtimes = ['runc', 'runc']\n", ["names something twice"]),
        (b"[runtime]\nlow-level-runtimes = 'runc'\n", ["'runc'", "a list of names"]),
        (b"[runtime]\nlog-file = 'x'\n", ["'x'", "an absolute path or empty"]),
        (b"[runtime]\nlog-max-size = '0'\n", ["a size such as"]),
        (b'[runtime]\nlog-max-size = "10m\\n"\n', ["a size such as"]),
        (b"[host]\ndriver-root = ''\n", ["an absolute path"]),
        (b'[host]\ndriver-root = "/a\\n"\n', ["an absolute path"]),
        (b"[host]\nload-driver = 'yes'\n", ["'yes'", "true or false"]),
        (b"[host]\ndriver-wait = 10\n", ["a duration such as"]),
        (b'[host]\ndriver-wait = "10s\\n"\n', ["a duration such as"]),
        (b"[host]\nhelpers = ['/a', 'b']\n", ["holds 'b'", "a list of absolute paths"]),
        (
            b"[request]\nsupported-driver-capabilities = ['graphic']\n",
            ["holds 'graphic'", "compat32, compute"],
        ),
    ],
)
def test_what_is_said_of_a_wrong_file(tmp_path: Path, text: bytes, expected: list[str]) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text)
    with pytest.raises(GpushimError) as caught:
        config_file.read(str(path))
    for words in (str(path), *expected):
        assert words in caught.value.sentence


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[host]\nload-driver = 1\nx = 2\n[inject]\nparams-hook = 3\n")
    with pytest.raises(GpushimError) as caught:
        config_file.read(str(path))
    for name in ("host.load-driver", "host.x", "inject.params-hook"):
        assert name in caught.value.sentence


def test_what_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(GpushimError, match="it is a folder"):
        config_file.read(str(tmp_path))
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    with pytest.raises(GpushimError, match="not a regular file"):
        config_file.read(str(fifo))
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(GpushimError, match="larger than 1 MiB"):
        config_file.read(str(large))


@given(st.binary(max_size=60))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    try:
        config_file.parse(content, "/c.toml")
    except GpushimError as error:
        assert "/c.toml" in error.sentence


def test_the_schema_file_is_the_one_of_the_table() -> None:
    """Made anew by: python -c 'from gpushim.config_schema import schema; ...' as in this test."""
    path = ROOT / "specs/gpushim_specs/config.json"
    assert path.read_text() == json.dumps(schema(), indent=2) + "\n"
    Draft7Validator.check_schema(load("config"))


def test_the_schema_allows_every_default_and_every_allowed_value() -> None:
    validator = Draft7Validator(load("config"))
    for key in table().values():
        values: list[object] = [key.default]
        lists = isinstance(key.default, list)
        values += [[value] if lists else value for value in key.allowed]
        for value in values:
            assert validator.is_valid({key.section: {key.name: value}}), (key.full_name, value)


@given(st.text("0123456789.smhkKMgGtTiIbB ", max_size=8))
def test_what_the_schema_allows_can_be_read(text: str) -> None:
    validator = Draft7Validator(load("config"))
    if validator.is_valid({"host": {"driver-wait": text}}):
        seconds(text)
    if validator.is_valid({"runtime": {"log-max-size": text}}):
        assert size(text) > 0


def test_the_documentation_is_the_one_of_the_table() -> None:
    """Made anew by: gpushimctl config --markdown > docs/configuration.md"""
    assert (ROOT / "docs/configuration.md").read_text() == config_text.markdown()


def test_the_default_file_sets_nothing_and_shows_every_default(tmp_path: Path) -> None:
    text = config_text.default_file()
    assert config_file.parse(text.encode(), "/c") == {}
    assert max(map(len, text.splitlines())) <= 130
    # With the keys' comment signs gone, it says the same as the table.
    names = {key.name for key in table().values()}
    shown = "\n".join(
        line[1:] if line.startswith("#") and line[1:].split(" = ")[0] in names else line
        for line in text.splitlines()
    )
    assert config_file.parse(shown.encode(), "/c") == configured().values
