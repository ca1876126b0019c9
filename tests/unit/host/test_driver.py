"""The kernel module: version, parameters, and the words when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpushim.config import Config
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from gpushim.host import driver

VERSIONS = {
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n": "550.163.01",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  "
    "(dvs-builder@U16-I3-B03-4-3)  Thu Jan 23 23:17:04 UTC 2025\nGCC version:\n": "570.86.15",
    "NVRM version: NVIDIA UNIX aarch64 Kernel Module  470.57  Mon Jul 5\n": "470.57",
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  615.71.09\n": "615.71.09",
}


def proc(path: Path, **files: str) -> str:
    (path / "driver/nvidia").mkdir(parents=True)
    for name, text in files.items():
        (path / "driver/nvidia" / name).write_text(text)
    return str(path)


@pytest.mark.parametrize("text", VERSIONS)
def test_version(tmp_path: Path, text: str) -> None:
    assert driver.version(proc(tmp_path, version=text)) == VERSIONS[text]


def test_no_module(tmp_path: Path) -> None:
    assert driver.version(str(tmp_path)) == ""


@pytest.mark.parametrize("text", ["", "GCC version: gcc version 12.2.0\n", "NVRM version: none\n"])
def test_a_text_without_version_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(GpushimError, match="holds no version"):
        driver.version(proc(tmp_path, version=text))


PARAMS = (
    "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\n"
    'DeviceFileMode: 432\nRegistryDwords: "a=1; b: 2"\nExcludedGpus: ""\n'
)


def test_params(tmp_path: Path) -> None:
    found = driver.params(proc(tmp_path, params=PARAMS))
    assert (found.modify_device_files, found.uid, found.gid, found.mode) == (True, 0, 44, 0o660)


@pytest.mark.parametrize("text", ["", "x", "DeviceFileMode: rw\nDeviceFileUID: -1\n"])
def test_params_that_say_nothing_have_the_drivers_defaults(text: str) -> None:
    found = driver.Params(text)
    assert (found.modify_device_files, found.uid, found.gid, found.mode) == (True, 0, 0, 0o666)


@pytest.mark.parametrize("text", [PARAMS, PARAMS.replace("Files: 1", "Files: 0"), "", "x\n\n"])
def test_the_copy_forbids_to_make_nodes(text: str) -> None:
    copy = driver.Params(text).without_modification()
    assert not driver.Params(copy).modify_device_files
    assert copy.count("ModifyDeviceFiles") == 1
    assert driver.Params(copy).without_modification() == copy
    for line in text.splitlines():
        assert line in copy or line.startswith("ModifyDeviceFiles")


def config(path: Path, **values: bool | str | list[str]) -> Config:
    return configured(
        {
            "host.proc-root": str(path / "proc"),
            "host.sys-root": str(path / "sys"),
            "host.dev-root": str(path / "dev"),
            "host.driver-root": str(path),
            "host.driver-wait": "300ms",
            "host.helpers": [str(path / "bin")],
            **{f"host.{name.replace('_', '-')}": value for name, value in values.items()},
        }
    )


def helper(path: Path, name: str, script: str) -> None:
    (path / "bin").mkdir(exist_ok=True)
    (path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / "bin" / name).chmod(0o755)


def test_loading_is_not_tried_where_it_is_not_wanted(tmp_path: Path) -> None:
    helper(tmp_path, "modprobe", f"touch {tmp_path}/ran")
    with pytest.raises(GpushimError, match="may not load it"):
        driver.ensure_loaded(config(tmp_path, load_driver=False))
    assert not (tmp_path / "ran").exists()


def test_no_helpers(tmp_path: Path) -> None:
    with pytest.raises(GpushimError, match="neither modprobe nor nvidia-modprobe"):
        driver.ensure_loaded(config(tmp_path))


def test_what_modprobe_says_is_told(tmp_path: Path) -> None:
    """B55."""
    helper(tmp_path, "modprobe", "echo 'FATAL: Module nvidia not found.' >&2; exit 1")
    helper(tmp_path, "nvidia-modprobe", "exit 3")
    with pytest.raises(GpushimError) as caught:
        driver.ensure_loaded(config(tmp_path))
    assert "`modprobe nvidia` failed (status 1): FATAL: Module" in caught.value.sentence
    assert "`nvidia-modprobe` failed (status 3)" in caught.value.sentence


def test_a_helper_gets_no_environment_and_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD_OF_CONTAINER", "evil")
    helper(tmp_path, "modprobe", f"env > {tmp_path}/env; exec sleep 30")
    with pytest.raises(GpushimError, match=r"did not end within 0\.\d+ seconds"):
        driver.ensure_loaded(config(tmp_path))
    assert "evil" not in (tmp_path / "env").read_text()


def test_the_second_helper_is_tried(tmp_path: Path) -> None:
    helper(tmp_path, "modprobe", "exit 1")
    text = next(iter(VERSIONS))
    where = tmp_path / "proc/driver/nvidia"
    helper(tmp_path, "nvidia-modprobe", f"mkdir -p {where}; printf '{text}' > {where}/version")
    assert driver.ensure_loaded(config(tmp_path)) == "550.163.01"


def test_other_platforms(tmp_path: Path) -> None:
    """B84, B85: and a real driver beside their marks is used."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "dev").mkdir()
    driver.refuse_other_platforms(config(tmp_path))
    (tmp_path / "dev/dxg").touch()
    with pytest.raises(GpushimError, match="WSL2"):
        driver.refuse_other_platforms(config(tmp_path))
    (tmp_path / "etc/nv_tegra_release").touch()
    with pytest.raises(GpushimError, match="Jetson"):
        driver.refuse_other_platforms(config(tmp_path))
    (tmp_path / "proc/driver/nvidia/gpus/0000:07:00.0").mkdir(parents=True)
    driver.refuse_other_platforms(config(tmp_path))
