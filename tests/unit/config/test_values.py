"""The table of keys and the values read by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpushim import config_keys
from gpushim.config import Config, seconds, size
from gpushim.config_keys import configured
from gpushim.places import Places
from hypothesis import given
from hypothesis import strategies as st


def test_defaults_are_the_agreed_ones() -> None:
    values = configured().values
    assert values == {
        "runtime.low-level-runtimes": ["runc", "crun"],
        "runtime.log-level": "info",
        "runtime.log-file": "",
        "runtime.log-max-size": "10m",
        "host.driver-root": "/",
        "host.dev-root": "/dev",
        "host.proc-root": "/proc",
        "host.sys-root": "/sys",
        "host.helpers": ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"],
        "host.load-driver": True,
        "host.driver-wait": "10s",
        "request.visible-devices": "grant",
        "request.all-from-environment": "free",
        "request.grant-over-exclusive": False,
        "request.accept-nvidia-visible-devices-envvar-when-unprivileged": True,
        "request.refuse-unaccepted-environment": False,
        "request.accept-nvidia-visible-devices-as-volume-mounts": False,
        "request.swarm-resource": [],
        "request.docker-records": True,
        "request.disable-require": False,
        "request.supported-driver-capabilities": [
            *("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
        ],
        "request.cuda-visible-devices": "translate",
        "cdi.spec-dirs": ["/etc/cdi", "/var/run/cdi"],
        "cdi.default-kind": "nvidia.com/gpu",
        "cdi.annotation-prefixes": ["cdi.k8s.io/"],
        "inject.layout": "tree",
        "inject.nccl": "off",
        "inject.params-hook": True,
        "inject.rootfs-write": "private",
        "allocate.counts": "exclusive",
        "allocate.real-use": "auto",
        "allocate.max-gpus": "",
        "allocate.max-per-label": {},
        "allocate.keep-out": [],
        "allocate.default-priority": "0",
        "allocate.wait-cap": "10m",
        "allocate.restart-grace": "5s",
        "allocate.max-age": "",
        "limits.cpus-per-gpu": "",
        "limits.memory-per-gpu": "",
        "limits.pids-per-gpu": "",
        "limits.shm-per-gpu": "",
        "limits.numa": "prefer",
        "limits.unified": {},
        "security.privileged": "warn",
        "security.drop-capabilities": [],
        "security.no-new-privileges": False,
    }
    assert set(configured().sources.values()) == {"default"}


def test_every_key_is_used_by_the_product() -> None:
    """A key that nothing acts on would be a promise that nobody keeps."""
    root = Path(config_keys.__file__).parent
    tables = {
        "config_keys.py",
        "config_keys_allocate.py",
        "config_keys_share.py",
        "config_schema.py",
        "config_file.py",
    }
    product = "".join(p.read_text() for p in root.rglob("*.py") if p.name not in tables)
    unused = [name for name in config_keys.table() if f'"{name}"' not in product]
    assert not unused


def test_sections_and_keys_agree() -> None:
    assert [*dict.fromkeys(key.section for key in config_keys.KEYS)] == list(config_keys.SECTIONS)
    assert len(config_keys.table()) == len(config_keys.KEYS)


def test_each_doc_is_one_sentence() -> None:
    for key in config_keys.KEYS:
        assert key.doc.endswith("."), key.full_name
        assert ". " not in key.doc, key.full_name


def test_the_default_log_is_the_one_that_is_documented() -> None:
    assert Places().default_log_file in config_keys.table()["runtime.log-file"].doc


def test_a_value_knows_where_it_comes_from() -> None:
    made = configured({"runtime.log-level": "debug"}, "/etc/x.toml")
    assert made.text("runtime.log-level") == "debug"
    assert made.sources["runtime.log-level"] == "/etc/x.toml"
    assert made.sources["runtime.log-file"] == "default"


def test_accessors() -> None:
    made = configured({"runtime.log-max-size": "2k", "host.driver-wait": "1.5s"})
    assert made.size("runtime.log-max-size") == 2048
    assert made.seconds("host.driver-wait") == 1.5
    assert made.flag("host.load-driver") is True
    assert made.texts("runtime.low-level-runtimes") == ["runc", "crun"]
    with pytest.raises(TypeError):
        made.flag("runtime.log-level")
    with pytest.raises(TypeError):
        made.text("host.load-driver")
    with pytest.raises(TypeError):
        made.texts("runtime.log-level")
    with pytest.raises(KeyError):
        made.text("runtime.no-such-key")


def test_json_and_back() -> None:
    made = configured({"host.dev-root": "/x/dev", "host.load-driver": False}, "/f")
    again = Config.from_json(json.loads(json.dumps(made.to_json())))
    assert again.values == made.values
    assert again.sources == made.sources


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0s", 0.0),
        ("10s", 10.0),
        ("10 s", 10.0),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1h", 3600.0),
    ],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "s", "10", " s", "10 s ", "-1s", "1e5s", "5.s", "1..5s", "10s\n", "٣s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("8", 8),
        ("8b", 8),
        ("8k", 8 << 10),
        ("8kb", 8 << 10),
        ("8KiB", 8 << 10),
        ("10m", 10 << 20),
        ("8g", 8 << 30),
        ("8 GiB", 8 << 30),
        ("1t", 1 << 40),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize(
    "text", ["", "k", "b", "8ib", "8i", "8bb", "8kbb", "8mm", "-1", "1.5g", "٣", "8g\n", "8p"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        size(text)


@given(st.text(max_size=12))
def test_parsers_never_raise_anything_else(text: str) -> None:
    for parse in (seconds, size):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass


@given(st.integers(0, 1 << 50), st.sampled_from(["", "b", "k", "KB", "mib", "G", "TiB"]))
def test_size_of_what_was_printed(number: int, unit: str) -> None:
    factor = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit[:1].lower()]
    assert size(f"{number}{unit}") == number << factor
