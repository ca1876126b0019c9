"""Which specs start Python: all that may be a request, and hardly any other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpushim import launcher_settings
from gpushim.config_keys import configured
from gpushim.places import Places

from tests.conftest import cannot
from tests.unit.launcher.rendered import Launcher


def env(text: str) -> str:
    return '{"process":{"env":["' + text + '"]}}'


def annotation(name: str) -> str:
    return '{"annotations":{"' + name + '":"1"}}'


def hook(path: str) -> str:
    return '{"hooks":{"prestart":[{"path":"' + path + '","args":["x"]}]}}'


def node(path: str) -> str:
    return '{"linux":{"devices":[{"path":"' + path + '"}]}}'


def mount(path: str) -> str:
    return '{"mounts":[{"destination":"' + path + '"}]}'


# A part of a spec, and whether Python has to see it.
SPECS: list[tuple[str, bool]] = [
    (env("A=b"), False),
    (env("NVIDIA_VISIBLE_DEVICES="), True),
    (env("XNVIDIA_VISIBLE_DEVICES=0"), False),
    (env("NVIDIA_DRIVER_CAPABILITIES=all"), False),
    (env("CUDA_VERSION=9.0"), True),
    (env("CUDA_VERSION_SHORT=9"), False),
    (env("NVIDIA_REQUIRE_CUDA=cuda>=9"), False),
    (env("GPUSHIM_GPUS=2"), True),
    (env("MY_GPUSHIM_GPUS=2"), False),
    (env("DOCKER_RESOURCE_GPU=GPU-1"), True),
    (env("DOCKER_RESOURCE_NVIDIA-GPU=0"), True),
    (annotation("gpushim.gpus"), True),
    (annotation("container.web.gpushim.gpus"), True),
    (annotation("cdi.k8s.io/plugin_0"), True),
    (annotation("io.kubernetes.cri.container-name"), False),
    (hook("/usr/bin/nvidia-container-runtime-hook"), True),
    (hook("/x/nvidia-container-toolkit"), True),
    (hook("/usr/bin/nvidia-cdi-hook"), True),
    (hook("/usr/local/bin/gpushim"), False),
    (node("/dev/nvidia0"), True),
    (node("/dev/nvidia-caps/nvidia-cap3"), True),
    ('{"linux": {"devices": [{"path": "/dev/nvidia0"}]}}', True),
    ('{"process":{"args":["ls","/dev/nvidia0"]}}', False),
    (node("/dev/fuse"), False),
    (mount("/var/run/nvidia-container-devices/0"), True),
    (mount("/usr/local/nvidia"), False),
    # Letters as escapes, and all other characters that the words have in them.
    (env("\\u004eVIDIA_VISIBLE_DEVICES=0"), True),
    (env("NVIDIA\\u005fVISIBLE_DEVICES=0"), True),
    # As writers of JSON that is safe in HTML write an equals sign.
    (env("NVIDIA_VISIBLE_DEVICES\\u003d0"), True),
    (env("NVIDIA_VISIBLE_DEVICES\\u003D0"), True),
    (env("CUDA_VERSION\\u003d9"), True),
    (annotation("gpushim\\u002egpus"), True),
    (annotation("gpushim\\u002Egpus"), True),
    (annotation("cdi.k\\u0038s.io/x"), True),
    (node("\\/dev\\/nvidia0"), True),
    (node("/dev\\/nvidia0"), True),
    (node("\\/dev/nvidia0"), True),
    (node("\\u002fdev/nvidia0"), True),
    (node("/dev\\u002Fnvidia0"), True),
    (mount("/var/run/nvidia\\u002dcontainer-devices/0"), True),
    (mount("/var/run/nvidia-container\\u002Ddevices/0"), True),
    # As Go writes < > &, line separators and control characters.
    ('{"process":{"args":["\\u003ca\\u003e \\u0026 \\u2028 \\u001b"]}}', False),
    ('{"a":"\xe9\x00"}', False),
    # Blanks between the parts of JSON make no difference.
    ('{\n  "process": {\n    "env": [\n      "NVIDIA_VISIBLE_DEVICES=0"\n    ]\n  }\n}', True),
]


@pytest.mark.parametrize(("spec", "wanted"), SPECS, ids=[spec for spec, _ in SPECS])
def test_what_triggers(launcher: Launcher, tmp_path: Path, spec: str, wanted: bool) -> None:
    launcher.stub_python().install()
    (tmp_path / "config.json").write_bytes(spec.encode("latin-1"))
    launcher.call("create", "-b", tmp_path, "c1")
    assert (launcher.python_started() is not None) == wanted
    assert (launcher.reached() is None) == wanted


def test_a_large_spec(launcher: Launcher, tmp_path: Path) -> None:
    launcher.stub_python().install()
    filler = [f'"X{number}={"y" * 990}"' for number in range(4000)]
    for first, last in (("A=b", "A=b"), ("A=b", "GPUSHIM_GPUS=1"), ("CUDA_VERSION=1", "A=b")):
        entries = [f'"{first}"', *filler, f'"{last}"']
        (tmp_path / "config.json").write_text('{"process":{"env":[' + ",".join(entries) + "]}}")
        launcher.call("create", "-b", tmp_path, "c1")
        assert (launcher.python_started() is None) == (first == last), (first, last)


def rendered(**values: bool | str | list[str]) -> str:
    """The lines that a configuration adds to the settings file."""
    names = {"docker_records": "request.docker-records"}
    names |= {"swarm": "request.swarm-resource", "prefixes": "cdi.annotation-prefixes"}
    names |= {"visible": "request.visible-devices", "all": "request.all-from-environment"}
    config = configured({names[name]: value for name, value in values.items()})
    base = {"low_level": "/x", "other_low_level": "", "low_level_family": "runc"}
    text = launcher_settings.render(base | launcher_settings.further(config))
    assert launcher_settings.parse(text) == base | launcher_settings.further(config)
    before = launcher_settings.render(base)
    assert text.startswith(before)
    return text[len(before) :]


def test_the_default_configuration_adds_nothing() -> None:
    """So a settings file of the former version holds, too."""
    assert rendered() == ""


@pytest.mark.parametrize("shell", ["sh", "bash --posix", "busybox sh", "dash"])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["", ":", "(void)?"]),
        ({"docker_records": False}, ["", "", "(void)?"]),
        ({"visible": "ignore"}, ["", ":", ".*"]),
        ({"visible": "allocate"}, ["", ":", "(void)?"]),
        ({"all": "none"}, ["", ":", "(void|all)?"]),
        ({"all": "all"}, ["", ":", "(void)?"]),
        ({"visible": "ignore", "all": "none"}, ["", ":", ".*"]),
        ({"prefixes": ["cdi.k8s.io/"]}, ["", ":", "(void)?"]),
        ({"prefixes": ["cdi.k8s.io/", "a.b/", "c"]}, ['"a.b/\n"c', ":", "(void)?"]),
        (
            {"swarm": ["DOCKER_RESOURCE_X"], "prefixes": ["a"]},
            ['"DOCKER_RESOURCE_X=\n"a', ":", "(void)?"],
        ),
    ],
)
def test_settings_as_a_shell_reads_them(
    launcher: Launcher, shell: str, settings: dict[str, Any], expected: list[str]
) -> None:
    if shutil.which(shell.split(maxsplit=1)[0]) is None:
        cannot(f"{shell} is not installed")
    launcher.install().configure(rendered(**settings))
    text = launcher.program.read_text()
    script = text[: text.index("case $low_level_family:$low_level in")]
    script += '\nprintf "%s\\0" "$_triggers" "$_docker_records" "$_no_request"\n'
    done = subprocess.run([*shell.split(), "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split("\0")[:-1] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {}),
        ("{}", {}),
        ('{"data-root":"/data/docker/"}', {"_docker": "/data/docker"}),
        ('{"data-root":"/a b\'s\\u0022"}', {"_docker": "/a b's\""}),
        ('{"data-root":"relative"}', {}),
        ('{"data-root":"/x\\u0000"}', {}),
        ('{"data-root":"/\\ud800"}', {}),
        ('{"data-root":1}', {}),
        ("[]", {}),
        ("not JSON", {}),
        ("\udcff", {}),
        ("[" * 100_000, {}),
    ],
)
def test_the_data_root_of_dockers_configuration(
    tmp_path: Path, text: str | None, expected: dict[str, str]
) -> None:
    if text is not None:
        (tmp_path / "etc/docker").mkdir(parents=True)
        data = text.encode("utf-8", "surrogateescape")
        (tmp_path / "etc/docker/daemon.json").write_bytes(data)
    found = launcher_settings.docker_data_root(Places(str(tmp_path)))
    assert found == expected
    settings = {"low_level": "/x", "other_low_level": "", "low_level_family": "runc", **found}
    assert launcher_settings.parse(launcher_settings.render(settings)) == settings


def test_configured_words(launcher: Launcher, tmp_path: Path) -> None:
    """Each one starts Python, only where it is configured, and only as it is spelt."""
    launcher.stub_python().install()
    text = rendered(prefixes=["cdi.k8s.io/", "cdi.example.com/", "devices."])
    for configuration, wanted in (("", False), (text, True)):
        launcher.configure(configuration)
        for name in ("cdi.example.com/x", "devices.y"):
            (tmp_path / "config.json").write_text(json.dumps({"annotations": {name: "a.b/c=d"}}))
            launcher.call("create", "-b", tmp_path, "c1")
            assert (launcher.python_started() is not None) == wanted, (name, configuration)
    for name in ("cdiXexample.com/x", "x.devices.y"):
        (tmp_path / "config.json").write_text(json.dumps({"annotations": {name: "a.b/c=d"}}))
        launcher.call("create", "-b", tmp_path, "c1")
        assert launcher.reached(), name


def test_variables_of_the_callers_are_no_settings(launcher: Launcher, tmp_path: Path) -> None:
    launcher.stub_python().install()
    (tmp_path / "config.json").write_text(env("A=b"))
    environment = {"_triggers": "A=b", "_docker_records": "x", "_no_request": ".*"}
    launcher.call("create", "-b", tmp_path, "c1", environment=environment)
    assert launcher.reached()


def test_a_setting_that_was_taken_back_is_gone_at_once(launcher: Launcher, tmp_path: Path) -> None:
    """The call that finds the configuration edited reads the settings twice."""
    refresh = tmp_path / "refresh"
    settings = launcher.directory / "var/lib/gpushim/launcher.conf"
    refresh.write_text(f"#!/bin/sh\nsed -i /_triggers/d '{settings}'\ntouch '{tmp_path}/ran'\n")
    refresh.chmod(0o755)
    launcher.template = launcher.template.replace("@REFRESH_PYTHON@", f"'{refresh}'")
    launcher.stub_python().install().configure("_triggers='A=b'\n")
    (tmp_path / "config.json").write_text(env("A=b"))
    launcher.call("create", "-b", tmp_path, "c1")
    assert launcher.python_started()
    config = launcher.directory / "etc/gpushim/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("")
    os.utime(config, (settings.stat().st_mtime + 2,) * 2)
    launcher.call("create", "-b", tmp_path, "c1")
    assert (tmp_path / "ran").exists()
    assert launcher.reached()
