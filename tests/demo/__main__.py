"""Runs the demo: `python -m tests.demo`. Exit status 0 only if every expectation held."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import NoReturn

from tests import images
from tests.demo import acts
from tests.demo.report import Report
from tests.demo.stage import Stage
from tests.harness import EngineUnavailable


def main() -> int:
    report = Report()
    if os.geteuid() != 0:
        report.say("The demo starts a dockerd of its own, which needs root: sudo make demo")
        return 1
    # A kill is to take the dockerd down as Ctrl-C does.
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    stage = Stage()
    try:
        _show(stage, report, began)
    except (EngineUnavailable, images.ImageUnavailable) as reason:
        report.expect(f"the demo can be set up: {reason}", False)
    except Exception as error:
        report.expect("the demo itself works", False, traceback.format_exc())
        if stage.engine is not None and isinstance(error, RuntimeError):
            report.show(stage.engine.log()[-2000:])
    finally:
        left = stage.close()
        report.title("Afterwards")
        report.expect("all that was started has ended, all that was made is gone", not left)
        report.say(
            "(Kept for the next time: .venv and the test images; `make clean` removes both.)"
        )
        report.show("\n".join(left))
    return report.verdict()


def _end(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def _show(stage: Stage, report: Report, began: float) -> None:
    report.title("gpushim demo")
    report.say(
        "Setting up in directories of its own beneath /var/tmp and /run: a fake NVIDIA host if "
        "this machine has no GPU, a dockerd of its own with a Debian image, and a private "
        "installation of gpushim. The first time, the image is built, which takes a minute or so."
    )
    stage.find_machine()
    stage.start_engine()
    engine = stage.engine
    assert engine is not None
    done = stage.install()
    usable = [gpu for gpu in stage.gpus if gpu.usable]
    versions = stage.docker("version", "--format", "{{.Server.Version}}").stdout.strip()
    kind = "a fake host, since this machine has no GPU" if stage.host else "this machine's own"
    report.fact("GPUs", f"{len(stage.gpus)} x {usable[0].model if usable else '?'} ({kind})")
    report.fact("Docker", f"a private dockerd {versions} (pid {engine.pid}); yours is untouched")
    report.fact("image", f"{stage.image} (glibc)")
    report.command("gpushimctl --root ROOT install --config daemon.json")
    report.show(stage.short(done.stdout + done.stderr))
    report.expect(
        "installed, and dockerd has read it without a restart",
        done.returncode == 0 and "has read it" in done.stdout,
        done.stdout + done.stderr,
    )
    report.expect(
        "the machine's GPUs were found, and at least one works",
        bool(usable) and f"Found {len(stage.gpus)} GPU" in done.stdout,
        done.stderr + stage.ctl("inventory").stderr,
    )
    if not usable or done.returncode != 0:
        return
    ready = time.monotonic()
    container = acts.two_gpus(stage, report)
    acts.no_gpu(stage, report)
    if container:
        acts.decision(stage, report, container)
    acts.cost(stage, report, container)
    acts.refusal(stage, report)
    acts.undo(stage, report)
    report.title("Time")
    report.fact("set-up", f"{ready - began:.1f} s")
    report.fact("shown in", f"{time.monotonic() - ready:.1f} s")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
