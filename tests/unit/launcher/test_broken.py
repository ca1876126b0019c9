"""Without Python or gpushim's code: what asks for nothing starts, and what asks fails."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.unit.launcher.rendered import Launcher
from tests.unit.launcher.test_docker import GPUS, LABEL, NO_LABEL, NOTHING
from tests.unit.launcher.test_triggers import annotation, env, hook, mount, node

REQUIRE = "NVIDIA_REQUIRE_CUDA=cuda\\u003e=11.0 brand=tesla"

# A part of a spec, and whether the container may ask for GPUs, for all that sh and grep can tell.
SPECS: list[tuple[str, bool]] = [
    (env("A=b"), False),
    (env("NVIDIA_VISIBLE_DEVICES="), False),
    (env("NVIDIA_VISIBLE_DEVICES=void"), False),
    (env("NVIDIA_VISIBLE_DEVICES\\u003dvoid"), False),
    (env('NVIDIA_VISIBLE_DEVICES=","A=b'), False),
    (env("NVIDIA_VISIBLE_DEVICES=0"), True),
    (env("NVIDIA_VISIBLE_DEVICES\\u003d0"), True),
    (env("NVIDIA_VISIBLE_DEVICES=all"), True),
    # The driver's files without a GPU are a request, too.
    (env("NVIDIA_VISIBLE_DEVICES=none"), True),
    (env('NVIDIA_VISIBLE_DEVICES=void\\"'), True),
    (env('NVIDIA_VISIBLE_DEVICES=void","NVIDIA_VISIBLE_DEVICES=1'), True),
    # An image with CUDA: only one of the first generation asks for GPUs by that.
    (env("CUDA_VERSION=9.0"), True),
    (env("CUDA_VERSION\\u003d9.0"), True),
    (env("CUDA_VERSION="), False),
    (env(f'CUDA_VERSION=12.1","{REQUIRE}'), False),
    (env(f'{REQUIRE}","CUDA_VERSION=12.1'), False),
    (env('CUDA_VERSION=9.0","NVIDIA_REQUIRE_CUDA='), True),
    (env('CUDA_VERSION=9.0","NVIDIA_VISIBLE_DEVICES=void'), False),
    (env('NVIDIA_VISIBLE_DEVICES=","CUDA_VERSION=9.0'), False),
    (env(f'CUDA_VERSION=12.1","{REQUIRE}","NVIDIA_VISIBLE_DEVICES=void'), False),
    (env(f'CUDA_VERSION=12.1","{REQUIRE}","NVIDIA_VISIBLE_DEVICES=all'), True),
    (env(REQUIRE), False),
    (env("GPUSHIM_GPUS=2"), True),
    (env("GPUSHIM_GPUS="), False),
    # Swarm's resources of other kinds are not gpushim's to give.
    (env("DOCKER_RESOURCE_NVIDIA-GPU=GPU-1b2c,GPU-3d"), True),
    (env("DOCKER_RESOURCE_X=MIG-1b2c"), True),
    (env("DOCKER_RESOURCE_SSD=3"), False),
    (env("DOCKER_RESOURCE_GPU=0"), False),
    (annotation("gpushim.gpus"), True),
    (annotation("container.web.gpushim.gpus"), True),
    (annotation("gpushim\\u002egpus"), True),
    ('{"annotations" : {"gpushim.gpus" : "1"}}', True),
    (annotation("io.kubernetes.cri.image-name"), False),
    # A name or an address that happens to have the word in it is no member of that name.
    ('{"annotations":{"image":"hub.gpushim.example/x"}}', False),
    ('{"annotations":{"image":"gpushim.example/x"}}', False),
    (annotation("cdi.k8s.io/plugin_0"), True),
    (annotation("cdi.k\\u0038s.io/x"), True),
    ('{"process":{"args":["kubectl","https://cdi.k8s.io/x"]}}', False),
    (hook("/usr/bin/nvidia-container-runtime-hook"), True),
    (hook("/usr/bin/nvidia-container-toolkit"), True),
    (hook("/usr/bin/nvidia-cdi-hook"), True),
    # The engine has given what is there; without Python it is only on no record.
    (node("/dev/nvidia0"), False),
    (node("\\/dev\\/nvidia0"), False),
    (node("\\u002fdev/nvidia0"), False),
    (node("/dev/fuse"), False),
    (mount("/var/run/nvidia-container-devices"), True),
    (mount("/var/run/nvidia\\u002Dcontainer-devices/0"), True),
    (mount("/srv/nvidia-container-devices.txt"), False),
    # What a letter's escape may hide can't be told; other escapes hide nothing.
    (env("\\u004eVIDIA_VISIBLE_DEVICES=0"), True),
    (env("A=\\u0061"), True),
    (env("A=\\\\u0061"), False),
    (env("A=\\\\\\u0061"), True),
    (env("NVIDIA_VISIBLE_DEVICES=\\\\void"), True),
    ('{"process":{"args":["sed","s/\\\\//\\u002d/","\\/dev\\/null"]}}', False),
]


def start(launcher: Launcher, bundle: Path, *options: str) -> bool:
    """Whether the container is handed on; if not, the reason is in the engine's log."""
    log = bundle / "log.json"
    log.unlink(missing_ok=True)
    words = [*options, "--log", str(log), "--log-format", "json", "create", "-b", str(bundle), "c1"]
    done = launcher.call(*words)
    if launcher.reached():
        assert (done.returncode, done.stderr, log.exists()) == (0, "", False)
        return True
    assert done.returncode == 1
    assert "asks for GPUs" in json.loads(log.read_text())["msg"]
    return False


@pytest.fixture(params=["python", "code"])
def broken(launcher: Launcher, request: pytest.FixtureRequest) -> Launcher:
    setattr(launcher, request.param, "/nowhere")
    return launcher.install()


@pytest.mark.parametrize(("spec", "asks"), SPECS, ids=[spec for spec, _ in SPECS])
def test_specs(broken: Launcher, tmp_path: Path, spec: str, asks: bool) -> None:
    (tmp_path / "config.json").write_text(spec)
    assert start(broken, tmp_path) != asks


@pytest.mark.parametrize("former", [False, True])
def test_a_record_of_an_earlier_container_is_no_request(
    broken: Launcher, tmp_path: Path, former: bool
) -> None:
    if former:
        (broken.containers / "c1").mkdir(parents=True)
    (tmp_path / "config.json").write_text(env("A=b"))
    assert start(broken, tmp_path)


@pytest.mark.parametrize(
    ("settings", "idle", "asking"),
    [
        # Where `all` of an image counts for nothing, a broken gpushim must not stop such images.
        (
            "_no_request='(void|all)?'\n",
            [env("NVIDIA_VISIBLE_DEVICES=all"), env("CUDA_VERSION=9.0")],
            [env("NVIDIA_VISIBLE_DEVICES=0"), env("NVIDIA_VISIBLE_DEVICES=alls")],
        ),
        (
            "_no_request='.*'\n",
            [env("NVIDIA_VISIBLE_DEVICES=0"), env("CUDA_VERSION=9.0")],
            [env("GPUSHIM_GPUS=1"), env('NVIDIA_VISIBLE_DEVICES=0","GPUSHIM_GPUS=1')],
        ),
        (
            "_triggers='\"DOCKER_RESOURCE_GPU=\n\"cdi.example.com/'\n",
            [env("DOCKER_RESOURCE_SSD=0"), annotation("cdi.example.org/x")],
            [env("DOCKER_RESOURCE_GPU=0"), annotation("cdi.example.com/x")],
        ),
    ],
)
def test_what_the_configuration_says(
    broken: Launcher, tmp_path: Path, settings: str, idle: list[str], asking: list[str]
) -> None:
    broken.configure(settings)
    for spec, handed_on in [*((spec, True) for spec in idle), *((spec, False) for spec in asking)]:
        (tmp_path / "config.json").write_text(spec)
        assert start(broken, tmp_path) == handed_on, spec


CDI = '{"DeviceRequests":[{"Driver":"cdi","Count":0,"DeviceIDs":["vendor.com/x=1"]}]}'


@pytest.mark.parametrize(
    ("host", "config", "asks"),
    [
        (NOTHING, NO_LABEL, False),
        (GPUS, NO_LABEL, True),
        (GPUS.replace('""', '"nvidia"'), NO_LABEL, True),
        (NOTHING, LABEL, True),
        # Docker has done itself what was asked for by CDI names.
        (CDI, NO_LABEL, False),
        (CDI, LABEL, True),
        (CDI.replace("[{", '[{"Driver":"","Count":-1},{'), NO_LABEL, True),
        (NOTHING, '{"Config":{"Image":"hub.gpushim.example/x"}}', False),
    ],
)
@pytest.mark.parametrize("usual", [True, False])
def test_docker(
    broken: Launcher, tmp_path: Path, usual: bool, host: str, config: str, asks: bool
) -> None:
    root = broken.docker if usual else tmp_path / "data"
    record = root / "containers" / "c1"
    record.mkdir(parents=True)
    (record / "hostconfig.json").write_text(host)
    (record / "config.v2.json").write_text(config)
    # Also where the spec has a word in it that may be a request, and is none.
    for entry in ("A=b", "NVIDIA_VISIBLE_DEVICES=void"):
        spec = {
            "process": {"env": [entry]},
            "mounts": [{"destination": "/etc/hosts", "source": f"{record}/hosts"}],
        }
        (tmp_path / "config.json").write_text(json.dumps(spec, separators=(",", ":")))
        assert start(broken, tmp_path, "--root", "/run/docker/runtime-runc/moby") != asks
        assert start(broken, tmp_path, "--root", "/run/containerd/runc/k8s.io")


def test_all_of_it_in_any_order(broken: Launcher, tmp_path: Path) -> None:
    """The judgement of an image's three variables does not hang on which comes first."""
    for parts in itertools.permutations(
        ["CUDA_VERSION=12.1", REQUIRE, "NVIDIA_VISIBLE_DEVICES=void"]
    ):
        (tmp_path / "config.json").write_text(env('","'.join(parts)))
        assert start(broken, tmp_path), parts
        (tmp_path / "config.json").write_text(env('","'.join(parts).replace("void", "1")))
        assert not start(broken, tmp_path), parts
