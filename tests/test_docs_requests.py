"""What the documents say of requests: each quoted text is what the program prints for just that.

docs/requests.md quotes messages in blocks. Here the code is asked for each of them.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from gpushim import config_keys
from gpushim.admin.explain_text import tell
from gpushim.allocate.choose import choose
from gpushim.allocate.grant import Grant
from gpushim.allocate.refusal import Refusal
from gpushim.allocate.wish import wish_of
from gpushim.cdi.collect import plain
from gpushim.cdi.registry import read as read_registry
from gpushim.cdi.unresolvable import unresolvable
from gpushim.config_keys import configured
from gpushim.errors import GpushimError
from gpushim.host.model import Gpu
from gpushim.inject.compat import find_compat
from gpushim.inject.container import Container
from gpushim.inject.gpus import device_edits, needed_nodes
from gpushim.observe.cgroups import Reading
from gpushim.oci.edits import Edits, Mount
from gpushim.oci.rootfs import RootFs
from gpushim.request import extras, keys, nvidia
from gpushim.request.dockerrecord import DeviceRequest, DockerRecord
from gpushim.request.gather import Asked
from gpushim.request.read import read_request
from gpushim.request.request import Request
from gpushim.request.requirements import Facts, check

from tests.conftest import cannot
from tests.test_docs import code
from tests.unit.inject.compatlibrary import install, libcuda

ROOT = Path(__file__).resolve().parent.parent
REQUESTS = ROOT / "docs/requests.md"
README = ROOT / "README.md"
# How a block begins that quotes gpushim.
QUOTED = ("gpushim: ", "Note: ", "Warning: ", "No GPU was given")


def blocks(path: Path) -> list[str]:
    """The indented blocks of a document, without their indentation."""
    found: list[list[str]] = [[]]
    for line in path.read_text().splitlines():
        if line.startswith("    "):
            found[-1].append(line[4:])
        elif found[-1] and not line:
            found[-1].append("")
        elif found[-1]:
            found.append([])
    return ["\n".join(lines).strip("\n") for lines in found if lines]


def paragraphs(path: Path) -> list[str]:
    """The same, parted at empty lines."""
    return [part for block in blocks(path) for part in re.split(r"\n\n+", block)]


def words(text: str) -> str:
    return " ".join(text.split())


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(GpushimError) as raised:
        call()
    return f"gpushim: {raised.value}"


def recorded(labels: dict[str, str], options: dict[str, str] | None = None) -> Asked:
    """What a container of Docker's asks for by labels, or by --gpus for two GPUs with options."""
    asked = Asked([])
    requests = [DeviceRequest("nvidia", 2, [], [["gpu"]], options)] if options else []
    asked.record = DockerRecord("/var/lib/docker/containers/x", "training", labels, requests)
    return asked


def two_with_memory() -> Request:
    request, _ = read_request(recorded({}, {"memory": "200gb"}), configured())
    assert request is not None
    return request


def too_much_memory() -> GpushimError:
    """What a machine with eight GPUs of 80 GiB says of it."""
    gpus = [Gpu(i, f"GPU-{i}", i, f"0000:0{i}:00.0", "NVIDIA A100-SXM4-80GB") for i in range(8)]
    for gpu in gpus:
        gpu.memory, gpu.reserved = 80 << 30, 613 << 20
    found = choose(wish_of(two_with_memory()), gpus, [])
    assert isinstance(found, Refusal)
    return found.error(0)


def requirement() -> str:
    facts = Facts("12.4", "550.163.01", "8.0", "nvidia")
    required = [("NVIDIA_REQUIRE_CUDA", "cuda>=13.0")]
    return refusal(lambda: check(required, facts, "GPU 0 (NVIDIA A100-SXM4-80GB)"))


def broken_spec(directory: Path) -> str:
    directory.mkdir()
    (directory / "nic.yaml").write_text(
        'cdiVersion: "0.5.0"\nkind: vendor.com/nic\ndevices:\n- name: "0"\n'
        "  containerEdits:\n    envs: [NIC=0]\n"
    )
    state = {"spec_dirs": ["/etc/cdi", "/var/run/cdi"], **plain(read_registry([str(directory)]))}
    error = unresolvable(["vendor.com/nic=0"], state)
    return f"gpushim: {error}".replace(str(directory), "/etc/cdi")


def compat(image: Path, model: str, brand: str) -> str:
    if not image.exists():
        install(image, "570.86.10", libcuda("535, 550, 560"))
    gpu = Gpu(0, "GPU-0", 0, "0000:07:00.0", model)
    gpu.brand = brand
    container = Container("/r", False, [], {}, False, False, [])
    with RootFs(str(image)) as root:
        found = find_compat(root, container, "550.163.01", Grant([gpu], ["compute"]))
    assert found is not None
    return f"Note: {found.said}"


def unrequested_all() -> str:
    config = configured({"request.all-from-environment": "none"})
    request, warnings = read_request(Asked(["NVIDIA_VISIBLE_DEVICES=all"]), config)
    assert request is None
    (said,) = warnings
    return said


def taken_out() -> str:
    from gpushim.inject.injected import take_out

    hooks = ["nvidia-cdi-hook"]
    container = Container("/r", False, [], {}, False, False, hooks)
    said = take_out(Edits(), container, [{"path": "/dev/nvidia0"}], [], "550.163.01", "/trees")
    return f"Warning: {said[0]}"


def printed(directory: Path) -> list[str]:
    """All that is quoted, as the program prints it."""
    config = configured()
    misspelt, few = recorded({"gpushim.gpu": "2"}), Asked(["GPUSHIM_MEMORY=8"])
    return [
        refusal(lambda: read_request(misspelt, config)),
        refusal(lambda: read_request(few, config)),
        requirement(),
        broken_spec(directory / "cdi"),
        compat(directory / "image", "NVIDIA A100-SXM4-80GB", "nvidia"),
        compat(directory / "image", "NVIDIA GeForce RTX 4090", "geforce"),
        taken_out(),
        unrequested_all(),
    ]


def test_messages_are_what_is_printed(tmp_path: Path) -> None:
    quoted = [words(text) for text in paragraphs(REQUESTS) if text.startswith(QUOTED)]
    assert sorted(quoted) == sorted(words(text) for text in printed(tmp_path))


def test_explain_of_a_refused_container() -> None:
    (block,) = [text for text in blocks(REQUESTS) if "explain training" in text]
    _, container, when, *rest = block.splitlines()
    request = two_with_memory()
    error = too_much_memory()
    lines = tell(
        {
            "id": container.split()[1],
            "name": "training",
            "refused": 0,
            "request": request.to_json(),
            "sentence": error.sentence,
            "hint": error.hint,
        }
    )
    assert lines[0] == container
    assert re.sub(r"\d", "0", lines[1]).rpartition("+")[0] == re.sub(r"\d", "0", when)[:-6]
    assert lines[2:] == rest


def test_explain_of_a_granted_container() -> None:
    """The block is what explain makes of the record of a container with GPUs 1 and 3 of a DGX."""
    (block,) = [text for text in blocks(REQUESTS) if "explain --no-diff web" in text]
    _, *lines = block.splitlines()
    model = "NVIDIA A100-SXM4-80GB"
    first = Gpu(1, "GPU-8fbe4d48-7c4e-400b-acdb-791488b8c0e6", 3, "0000:0f:00.0", model)
    second = Gpu(3, "GPU-c317be17-dc64-48c7-a7d6-3ca62baf88a3", 1, "0000:4e:00.0", model)
    asked = recorded({})
    assert asked.record is not None
    asked.record.requests.append(DeviceRequest("nvidia", 0, ["1", "3"], [["gpu"]], {}))
    request, _ = read_request(asked, configured())
    assert request is not None
    edits = Edits()
    edits.env |= {
        "NVIDIA_VISIBLE_DEVICES": f"{first.uuid},{second.uuid}",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    numbers = {"nvidia1": (195, 1), "nvidia3": (195, 3), "nvidiactl": (195, 255)}
    numbers |= {"nvidia-uvm": (511, 0), "nvidia-uvm-tools": (511, 1)}
    grant = Grant([first, second], request.capabilities)
    facts = {name: (*numbers[name], 0o666, 0, 0) for name in needed_nodes(grant)}
    device_edits(edits, "/dev", facts)
    tree = "/var/lib/gpushim/driver/550.163.01/compute+utility-4a97c391"
    edits.mounts += [
        Mount(tree, "/usr/local/nvidia", []),
        Mount(f"{tree}/bin/nvidia-smi", "/usr/bin/nvidia-smi", []),
        Mount("/etc/OpenCL/vendors/nvidia.icd", "/etc/OpenCL/vendors/nvidia.icd", []),
    ]
    edits.remove_hooks.append("nvidia-container-runtime-hook")
    group = Reading()
    group.memory, group.memory_limit = 9_340_000_000, 64 << 30
    group.processors, group.cpu_seconds = 16.0, 8125.3
    group.pids, group.cpus, group.memory_nodes = 41, list(range(64)), [0, 1]
    assert lines == tell(
        {
            "id": lines[0].split()[1],
            "name": "web",
            "bundle": lines[1].split()[1],
            "runtime": "/usr/bin/runc",
            "request": request.to_json(),
            "grant": grant.to_json(),
            "edits": edits.to_json(),
            "cgroup": group.to_json(),
            "notes": [
                "/etc/ld.so.conf.d/00-gpushim.conf was written, for ldconfig in the container.",
                "The driver's libraries were merged into /etc/ld.so.cache.",
            ],
        }
    )


@pytest.mark.parametrize("path", [README, REQUESTS], ids=lambda path: str(path.name))
def test_what_the_docker_command_says_itself(path: Path) -> None:
    """It needs no daemon for that."""
    (block,) = [text for text in paragraphs(path) if "invalid argument" in text]
    command, message = block.splitlines()
    docker = shutil.which("docker", path="/usr/bin:/usr/local/bin:/bin")
    if docker is None:
        cannot("docker is not installed")
    assert '--gpus \'"device=0,1","memory=2gb"\'' in command
    done = subprocess.run(
        [docker, "run", "--rm", "--gpus", '"device=0,1","memory=2gb"', "debian", "nvidia-smi"],
        env={"DOCKER_HOST": "unix:///nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].rstrip(".") == message


def table(heading: str) -> list[list[str]]:
    """The cells of the first table behind a line of requests.md, without its head."""
    text = REQUESTS.read_text().partition(heading)[2]
    assert text, heading
    rows = text.partition("|---")[2].partition("\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows.splitlines()]


def test_the_table_of_keys() -> None:
    """It has every key, and its examples can be read."""
    rows = table("| key | examples ")
    assert tuple(row[0].strip("`") for row in rows) == keys.KEYS
    for cell, examples, _ in rows:
        key = cell.strip("`")
        found = re.findall(r"`([^`]+)`", examples)
        assert found, key
        for example in found:
            asked = Asked([f"{keys.variable_name(key)}={example}"])
            if key != "gpus":
                asked.environment.append("GPUSHIM_GPUS=1")
            request, _ = read_request(asked, configured())
            if request is None:
                assert (key, example) == ("gpus", "0")


def test_every_variable_is_told_of() -> None:
    named = set(re.findall(r"\b(?:NVIDIA|CUDA)_[A-Z_]+", REQUESTS.read_text()))
    known = {
        value
        for name, value in {**vars(nvidia), **vars(extras)}.items()
        if is_variable(name, value)
    }
    assert known.union(extras.FEATURES, ["NVIDIA_DISABLE_REQUIRE"]) <= named


def is_variable(name: str, value: object) -> bool:
    return name.isupper() and isinstance(value, str) and value.startswith(("NVIDIA_", "CUDA_"))


def test_every_setting_of_requests_is_told_of() -> None:
    rows = {row[0].strip("`") for row in table("In the section `[request]`")}
    known = {key.name for key in config_keys.KEYS if key.section == "request"}
    assert rows == known - {"cuda-visible-devices"}  # behaviour.md has that


@pytest.mark.parametrize("path", [README, REQUESTS], ids=lambda path: str(path.name))
def test_compose_files(path: Path) -> None:
    """They are YAML, and what they ask for is known."""
    found = [text for text in paragraphs(path) if text.startswith("services:")]
    assert found
    for text in found:
        for service in yaml.safe_load(text)["services"].values():
            assert service["runtime"] == "gpushim"
            labels = service.get("labels", {}).items()
            options: dict[str, object] = {}
            if "deploy" in service:
                (device,) = service["deploy"]["resources"]["reservations"]["devices"]
                assert device["capabilities"] == ["gpu"]
                options = device["options"]
            assert keys.from_names(labels, "gpushim.", "label") or keys.from_names(
                options.items(), "", "option"
            )


@pytest.mark.parametrize("path", [README, REQUESTS], ids=lambda path: str(path.name))
def test_programs(path: Path) -> None:
    """The examples for the Docker SDK are Python, and their options are keys."""
    (block,) = [text for text in blocks(path) if "import docker" in text]
    tree = ast.parse(block[block.index("import docker") :])
    (options,) = [
        ast.literal_eval(word.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "options"
    ]
    assert keys.from_names(options.items(), "", "option")


@pytest.mark.parametrize("path", [README, *sorted(ROOT.glob("docs/*.md"))], ids=lambda p: p.name)
def test_keys_that_documents_name(path: Path) -> None:
    for text in code(path):
        for key in re.findall(r"(?:label|annotation)[ =]gpushim\.([a-z-]+)=", text):
            assert key in keys.KEYS, text
        for name in re.findall(r"GPUSHIM_[A-Z_]+(?==)", text):
            assert name in map(keys.variable_name, keys.KEYS), text
        for options in re.findall(r'"options=([^"]+)"', text):
            for option in options.split(","):
                key, _, value = option.partition("=")
                keys.parse(key, value, text)
