"""What the demo shows, one function an act."""

from __future__ import annotations

import statistics
import time

from tests.demo.report import Report
from tests.demo.stage import Gpu, Stage

CONTROL_NODES = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_ROUNDS = 7
_READY_SECONDS = 30


class Selection:
    """Which GPUs a container is given, and one that it is not (None if there is no other)."""

    def __init__(self, gpus: list[Gpu]) -> None:
        usable = [gpu for gpu in gpus if gpu.usable]
        self.given = [usable[1], usable[3]] if len(usable) > 3 else usable[-1:]
        others = [gpu for gpu in usable if gpu not in self.given]
        self.other = others[0] if others else None

    @property
    def value(self) -> str:
        """For NVIDIA_VISIBLE_DEVICES."""
        return ",".join(str(gpu.index) for gpu in self.given)


def look_around(nodes: list[str], foreign: tuple[int, int] | None) -> str:
    """The script that containers run: what they see, in sections, and then they stay.

    nodes: names in /dev to open; foreign: number of a node to make by hand and open.
    """
    opens = " ".join(f"/dev/{name}" for name in nodes)
    lines = ["echo '== nodes'; ls /dev | grep nvidia", f"echo '== open'; probe open {opens}"]
    if foreign:
        major, minor = foreign
        lines.append(f"probe mknod /dev/by-hand {major} {minor} >&2; probe open /dev/by-hand")
    lines += [
        f"echo '== dlopen'; probe dlopen {' '.join(LIBRARIES)}",
        "echo '== cache'; ldconfig -p | grep -E ' => .*nvidia'",
        "echo '== env'; env | grep -E '^(NVIDIA|CUDA)_'",
        "echo '== smi'; nvidia-smi",
        "echo '== uuid'; nvidia-smi --query-gpu=uuid --format=csv,noheader",
        "echo '== end'; exec sleep 600",
    ]
    return "\n".join(lines)


def sections(output: str) -> dict[str, str]:
    """Section name -> text of what `look_around` printed."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in output.splitlines():
        if line.startswith("== "):
            name = line[3:]
            found[name] = []
        elif name:
            found[name].append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def start(stage: Stage, name: str, options: list[str], script: str) -> dict[str, str]:
    """Starts a container in the background and returns what it saw, in sections."""
    command = ["run", "-d", "--name", name, "--runtime", "gpushim", *options, stage.image]
    done = stage.docker(*command, "sh", "-c", script)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        output = stage.docker("logs", name)
        found = sections(output.stdout)
        if "end" in found or time.monotonic() > deadline:
            # Which stream a missing program is told on is of no interest here.
            return {**found, "stderr": output.stderr}
        time.sleep(0.1)


def two_gpus(stage: Stage, report: Report) -> str:
    """A container on two of the GPUs; returns its id."""
    chosen = Selection(stage.gpus)
    report.title(f"A container on GPU {' and '.join(str(gpu.index) for gpu in chosen.given)}")
    report.command(
        f"docker run --runtime gpushim -e NVIDIA_VISIBLE_DEVICES={chosen.value} {stage.image} ..."
    )
    own = [f"nvidia{gpu.minor}" for gpu in chosen.given]
    foreign = stage.number(chosen.other) if chosen.other else None
    seen = start(
        stage,
        "demo-two",
        ["-e", f"NVIDIA_VISIBLE_DEVICES={chosen.value}"],
        look_around([*own, "nvidiactl", "nvidia-uvm"], foreign),
    )
    if "error" in seen:
        report.expect("the container starts", False, seen["error"])
        return ""
    nodes = sorted(seen.get("nodes", "").split())
    report.fact("/dev", " ".join(nodes))
    names = ", ".join(f"{gpu.index} is nvidia{gpu.minor}" for gpu in chosen.given)
    report.expect(
        f"control nodes, and of GPUs only its own ({names})",
        nodes == sorted([*own, *CONTROL_NODES]),
        " ".join(nodes),
    )
    _opens(stage, report, chosen, seen.get("open", ""))
    _libraries(report, seen)
    report.show(seen.get("env", ""))
    uuids = [gpu.uuid for gpu in chosen.given]
    report.expect(
        "NVIDIA_VISIBLE_DEVICES holds their UUIDs, once",
        f"NVIDIA_VISIBLE_DEVICES={','.join(uuids)}" in seen.get("env", "").splitlines()
        and seen["env"].count("NVIDIA_VISIBLE_DEVICES=") == 1,
        seen.get("env", ""),
    )
    report.command("nvidia-smi   # in the container")
    report.show(_without_processes(seen.get("smi", "")))
    report.expect(
        "nvidia-smi lists these GPUs and no other",
        seen.get("uuid", "").split() == uuids,
        seen.get("uuid", "") + seen.get("stderr", ""),
    )
    _exec(stage, report, uuids)
    found = stage.docker("inspect", "--format", "{{.Id}}", "demo-two")
    return found.stdout.strip()


def _opens(stage: Stage, report: Report, chosen: Selection, output: str) -> None:
    """What opening the nodes gave. No driver is behind a fake host's: permitted means ENXIO."""
    if stage.host:
        report.say(
            "Opening the nodes. No driver is behind those of a fake host: where the kernel permits "
            "an open, it ends with ENXIO (no such device); where it forbids one, with EPERM."
        )
    report.show(output)
    results = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    permitted = "ENXIO" if stage.host else "OK"
    names = [*(f"nvidia{gpu.minor}" for gpu in chosen.given), "nvidiactl", "nvidia-uvm"]
    report.expect(
        f"those may be opened ({permitted})",
        all(results.get(f"/dev/{name}") == permitted for name in names),
        output,
    )
    if chosen.other:
        major, minor = stage.number(chosen.other)
        report.expect(
            f"a node made by hand for GPU {chosen.other.index} ({major}:{minor}) is refused: EPERM",
            results.get("/dev/by-hand") == "EPERM",
            output,
        )


def _libraries(report: Report, seen: dict[str, str]) -> None:
    report.show(seen.get("dlopen", ""))
    paths = dict(
        line.split(" -> ", 1) for line in seen.get("dlopen", "").splitlines() if " -> " in line
    )
    report.expect(
        "the image's own loader finds the driver's libraries",
        all(paths.get(name, "").startswith("/usr/local/nvidia/") for name in LIBRARIES),
        seen.get("dlopen", "") + seen.get("stderr", ""),
    )
    listed = seen.get("cache", "")
    report.expect(
        f"ldconfig -p lists them ({len(listed.splitlines())} entries of the driver)",
        all(f"{name} (" in listed for name in LIBRARIES),
        listed,
    )


def _without_processes(table: str) -> str:
    """nvidia-smi's table of GPUs, without the empty one of processes that a blank line precedes."""
    lines = table.splitlines()
    for number, line in enumerate(lines):
        if not line.strip():
            return "\n".join(lines[:number])
    return table


def _exec(stage: Stage, report: Report, uuids: list[str]) -> None:
    query = "nvidia-smi --query-gpu=uuid --format=csv,noheader"
    done = stage.docker(
        "exec", "demo-two", "sh", "-c", f"{query}; ldconfig; {query}; echo $NVIDIA_VISIBLE_DEVICES"
    )
    report.expect(
        "docker exec sees the same, also after ldconfig ran in the container",
        done.stdout.split() == [*uuids, *uuids, ",".join(uuids)],
        done.stdout + done.stderr,
    )


def decision(stage: Stage, report: Report, container: str) -> None:
    """What was decided, as gpushimctl tells it."""
    report.title("What was decided")
    report.command("gpushimctl explain --no-diff demo-two")
    done = stage.ctl("explain", "--no-diff", "demo-two")
    report.show(stage.short(done.stdout).replace(container, container[:12]))
    if stage.host:
        report.say("(DEMO holds the fake host, ROOT this private installation.)")
    report.expect(
        "explain names the request, the grant and the edits",
        done.returncode == 0
        and all(word in done.stdout for word in ("Asked for:", "Granted:", "Changed:")),
        done.stdout + done.stderr,
    )


def no_gpu(stage: Stage, report: Report) -> None:
    """A container that asks for nothing."""
    report.title("A container that asks for no GPU")
    report.command(f"docker run --runtime gpushim {stage.image} ...")
    any_gpu = next(gpu for gpu in stage.gpus if gpu.minor >= 0)
    seen = start(stage, "demo-none", [], look_around(["nvidiactl"], stage.number(any_gpu)))
    if "error" in seen:
        report.expect("the container starts", False, seen["error"])
        return
    report.expect("no node of NVIDIA's in /dev", not seen.get("nodes"), seen.get("nodes", ""))
    report.expect(
        "a node made by hand is refused (EPERM)",
        "/dev/by-hand EPERM" in seen.get("open", ""),
        seen.get("open", ""),
    )
    report.expect(
        "no driver library is found, and there is no nvidia-smi",
        " -> " not in seen.get("dlopen", "") and not seen.get("smi") and not seen.get("cache"),
        seen.get("dlopen", "") + seen.get("smi", ""),
    )
    assert stage.engine is not None
    container = stage.docker("inspect", "--format", "{{.Id}}", "demo-none").stdout.strip()
    files = [path.name for path in stage.engine.exec_root.glob(f"**/{container}/config.json*")]
    report.expect(
        "its config.json is as Docker wrote it (gpushim left no trace beside it)",
        files == ["config.json"],
        " ".join(files),
    )


def refusal(stage: Stage, report: Report) -> None:
    """A GPU that does not exist: what the person who typed the command reads."""
    report.title("A GPU that does not exist")
    wanted = max(gpu.index for gpu in stage.gpus) + 1
    report.command(
        f"docker run --rm --runtime gpushim -e NVIDIA_VISIBLE_DEVICES={wanted} {stage.image} true"
    )
    done = stage.docker(
        *("run", "--rm", "--runtime", "gpushim", "-e", f"NVIDIA_VISIBLE_DEVICES={wanted}"),
        *(stage.image, "true"),
    )
    report.say(done.stderr.strip().partition("\n")[0])
    report.expect(
        f"refused (status {done.returncode}), with what was asked for and what there is",
        done.returncode != 0
        and f"NVIDIA_VISIBLE_DEVICES={wanted}" in done.stderr
        and all(gpu.uuid in done.stderr for gpu in stage.gpus),
        done.stderr,
    )


def cost(stage: Stage, report: Report, container: str) -> None:
    """What it costs, on this machine at this moment; `make bench` measures properly."""
    report.title("What it costs")
    chosen = Selection(stage.gpus)
    kinds = {
        "runc alone": ["--runtime", "runc"],
        "gpushim, no GPU": ["--runtime", "gpushim"],
        f"gpushim, GPU {chosen.value}": [
            *("--runtime", "gpushim", "-e", f"NVIDIA_VISIBLE_DEVICES={chosen.value}"),
        ],
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    failed = []
    for _ in range(_ROUNDS):
        for kind, options in kinds.items():
            began = time.monotonic()
            done = stage.docker("run", "--rm", *options, stage.image, "true")
            times[kind].append((time.monotonic() - began) * 1000)
            if done.returncode != 0:
                failed.append(done.stderr)
    report.say(
        f"Wall time of a whole `docker run --rm`, median of {_ROUNDS}, taken in turn; the machine "
        "may be busy, and most of it is Docker's own. For figures to rely on: make bench."
    )
    base = statistics.median(times["runc alone"])
    for kind, values in times.items():
        median = statistics.median(values)
        added = "" if kind == "runc alone" else f"  ({median - base:+.0f} ms)"
        report.show(f"{kind:18} {median:6.0f} ms{added}")
    report.expect("each of these runs succeeded", not failed, "\n".join(failed[:1]))
    steps = stage.log_line(container).get("steps_ms", {})
    if steps:
        report.say(
            "gpushim's own part of the first create (Python's start not counted), from its log: "
            "after how many milliseconds each step was done."
        )
        report.show("ms  " + "  ".join(f"{name} {value:.1f}" for name, value in steps.items()))
    report.expect("gpushim's log has the time of each step", bool(steps))


def undo(stage: Stage, report: Report) -> None:
    """uninstall, and what is left."""
    report.title("Uninstall")
    stage.docker("rm", "--force", "demo-two", "demo-none")
    done = stage.ctl("uninstall")
    assert stage.engine is not None
    report.expect(
        "uninstall succeeds, and the launcher is gone",
        done.returncode == 0 and not (stage.root / "usr/local/bin/gpushim").exists(),
        done.stdout + done.stderr,
    )
    report.expect(
        "daemon.json is byte for byte as it was",
        stage.engine.config_path.read_bytes() == stage.daemon_json,
        stage.engine.config_path.read_text(),
    )
