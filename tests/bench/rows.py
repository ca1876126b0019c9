"""The rows of the table: what is compared with what, and how much it may cost."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .bundle import Bundle, cdi_spec, count_spec, gpu_spec, label_spec, large_spec, plain_spec
from .containers import LIFE, Running, Runtime, new_id
from .measure import BenchError
from .rig import Installation, Rig
from .statistics import Sample

Side = Callable[[], dict[str, Sample]]

GPUS = 8
CDI_SPECS = 200
_ONE = ""  # the key of a series that measures one thing only


@dataclass(frozen=True)
class Row:
    """One line of the table.

    key: which of its series' samples; bar: the largest ratio of wall times, None for none;
    decides: whether it tells a quiet run from a noisy one.
    """

    title: str
    key: str = _ONE
    bar: float | None = None
    decides: bool = False


@dataclass(frozen=True)
class Series:
    """What is measured together, in pairs: the base, and what is compared with it."""

    base: str
    rows: tuple[Row, ...]
    prepare: Callable[[Rig], tuple[Side, Side]]


def bundle(rig: Rig, kind: str) -> Bundle:
    """A new bundle: "plain", "gpu", "count", "label", "cdi" or "large"."""
    records = rig.docker / "containers" if kind == "label" else None
    made = Bundle(rig.work / f"bundle-{kind}-{secrets.token_hex(4)}", rig.image, records)
    fixture = rig.programs["procdriver"]
    if kind == "plain":
        made.fill(plain_spec())
    elif kind == "gpu":
        made.fill(gpu_spec(made.rootfs, fixture))
    elif kind == "count":
        made.fill(count_spec(made.rootfs, fixture, GPUS))
    elif records is not None:
        made.fill(label_spec(made.rootfs, fixture, records))
    elif kind == "cdi":
        made.fill(cdi_spec(made.rootfs, fixture, GPUS))
    else:
        made.fill(large_spec(made.rootfs, fixture))
    return made


def runc(rig: Rig, kind: str = "") -> Runtime:
    return Runtime(rig.runc, _state(rig, kind), rig.caller)


def gpushim(rig: Rig, installation: Installation, kind: str = "") -> Runtime:
    return Runtime(installation.launcher, _state(rig, kind), rig.caller)


def _state(rig: Rig, kind: str) -> Path:
    """The state root; by the name that Docker's has, for a container that has its record."""
    return rig.state / "moby" if kind == "label" else rig.state


def _lives(rig: Rig, kind: str, other: Runtime) -> tuple[Side, Side]:
    base, where = runc(rig, kind), bundle(rig, kind)
    return lambda: base.life(where), lambda: other.life(where)


def _null(rig: Rig) -> tuple[Side, Side]:
    return _lives(rig, "plain", runc(rig))


def _without_gpu(rig: Rig) -> tuple[Side, Side]:
    return _lives(rig, "plain", gpushim(rig, rig.installation(GPUS)))


def _with_gpus(kind: str) -> Callable[[Rig], tuple[Side, Side]]:
    def prepare(rig: Rig) -> tuple[Side, Side]:
        other = gpushim(rig, rig.installation(GPUS), kind)
        check_grant(rig, other, GPUS, bundle(rig, kind))
        return _lives(rig, kind, other)

    return prepare


def _version(rig: Rig) -> tuple[Side, Side]:
    launcher = rig.installation(GPUS).launcher
    return (
        lambda: {_ONE: rig.caller.call([rig.runc, "--version"])},
        lambda: {_ONE: rig.caller.call([launcher, "--version"])},
    )


def _exec(kind: str) -> Callable[[Rig], tuple[Side, Side]]:
    def prepare(rig: Rig) -> tuple[Side, Side]:
        base, other = runc(rig), gpushim(rig, rig.installation(GPUS))
        container = Running(other, bundle(rig, kind))
        return lambda: {_ONE: container.exec(base)}, lambda: {_ONE: container.exec(other)}

    return prepare


def alone(
    rig: Rig,
    gpus: int = GPUS,
    cdi_specs: int = 0,
    kind: str = "gpu",
    leases: int = 0,
    real_use: str = "never",
) -> Side:
    """A create with nothing below gpushim, so that what it takes is gpushim's own."""
    runtime = gpushim(rig, rig.installation(gpus, cdi_specs, True, leases, real_use))
    where = bundle(rig, kind)
    check_grant(rig, runtime, GPUS if kind == "count" else gpus, where)

    def side() -> dict[str, Sample]:
        container = new_id()
        where.renew(container)
        return {_ONE: runtime.create(where, container)}

    return side


def bare_start(rig: Rig) -> Side:
    """The interpreter that containers are created with, doing nothing."""
    python = rig.installation(GPUS, alone=True).python
    where = bundle(rig, "gpu")

    def side() -> dict[str, Sample]:
        where.renew(new_id())
        return {_ONE: rig.caller.call([python, "-I", "-S", "-c", "pass"])}

    return side


def check_grant(rig: Rig, runtime: Runtime, gpus: int, where: Bundle | None = None) -> None:
    """Make sure that what is measured happens at all. Raises BenchError if it does not."""
    where = where or bundle(rig, "gpu")
    container = new_id()
    where.renew(container)
    runtime.create(where, container)
    spec = where.read()
    nodes = [device["path"] for device in spec["linux"].get("devices", [])]
    hooks = [Path(hook["path"]).name for hook in spec["hooks"]["createContainer"]]
    if nodes.count("/dev/nvidiactl") != 1 or len(nodes) < gpus + 1 or hooks[1:] != ["mount"]:
        raise BenchError(f"A create gave these nodes and hooks: {nodes}, {hooks}.")
    if (where.path / "init.pid").exists():
        runtime.call(where, "delete", "--force", container)


ALL = (
    Series(
        "runc",
        (
            Row("runc against runc: create", "create"),
            Row(f"runc against runc: {LIFE}", LIFE, decides=True),
        ),
        _null,
    ),
    Series("runc", (Row("--version", bar=1.2),), _version),
    Series(
        "runc",
        (
            *(Row(name, name, bar=1.2) for name in ("state", "start", "kill", "delete")),
            Row("create, no GPU asked for", "create", bar=1.2),
            Row(f"{LIFE}, no GPU asked for", LIFE, bar=1.15),
        ),
        _without_gpu,
    ),
    Series(
        "runc",
        (
            Row(f"create, {GPUS} GPUs", "create", bar=1.7),
            Row(f"{LIFE}, {GPUS} GPUs", LIFE, bar=1.4),
        ),
        _with_gpus("gpu"),
    ),
    Series(
        "runc", (Row(f"create, {GPUS} GPUs by a label", "create", bar=1.7),), _with_gpus("label")
    ),
    Series(
        "runc", (Row(f"create, {GPUS} GPUs by CDI names", "create", bar=1.7),), _with_gpus("cdi")
    ),
    Series("runc", (Row("exec, container with a grant", bar=1.7),), _exec("gpu")),
    Series("runc", (Row("exec, any other container", bar=1.2),), _exec("plain")),
    Series(
        "python3 -I -S -c pass",
        (Row(f"gpushim alone, {GPUS} GPUs", bar=2.0),),
        lambda rig: (bare_start(rig), alone(rig)),
    ),
    # 1.3 and 1.6 times what creates may take without leases in their way.
    Series(
        "python3 -I -S -c pass",
        (Row(f"gpushim alone, {GPUS} of 16 GPUs among 50 leases", bar=2.6),),
        lambda rig: (bare_start(rig), alone(rig, 16, kind="count", leases=50)),
    ),
    Series(
        "python3 -I -S -c pass",
        (Row(f"gpushim alone, {GPUS} of 16 GPUs among 200 leases", bar=3.2),),
        lambda rig: (bare_start(rig), alone(rig, 16, kind="count", leases=200)),
    ),
    Series(
        "without asking",
        (Row(f"gpushim alone, {GPUS} of 16 GPUs, real use asked of NVML"),),
        lambda rig: (alone(rig, 16, kind="count"), alone(rig, 16, kind="count", real_use="auto")),
    ),
    Series(
        "python3 -I -S -c pass",
        (Row("gpushim alone, config.json of 4 MB", bar=8.0),),
        lambda rig: (bare_start(rig), alone(rig, kind="large")),
    ),
    Series(
        "without them",
        (Row(f"gpushim alone, {CDI_SPECS} CDI specs in the fake host's etc/cdi", bar=1.05),),
        lambda rig: (alone(rig), alone(rig, cdi_specs=CDI_SPECS)),
    ),
    Series(
        "with 1 GPU",
        (Row("gpushim alone, 16 GPUs", bar=1.2),),
        lambda rig: (alone(rig, gpus=1), alone(rig, gpus=16)),
    ),
)
