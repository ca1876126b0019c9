"""Docker records that cannot be used: what the container loses by it is at least told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Bundle, Runtime
from tests.harness.asking import Ask
from tests.harness.machine import Machine

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_label_in_a_record_that_does_not_count_is_not_lost_in_silence(
    dgx: Machine,
    runtime_of: Callable[[Machine], Runtime],
    make_bundle: Callable[..., Bundle],
    tmp_path: Path,
    mode: int,
) -> None:
    runtime = runtime_of(dgx)
    runtime.root = runtime.directory / "moby"
    ask = Ask(dgx, runtime, make_bundle)
    bundle = ask.bundle()
    record = tmp_path / "containers" / bundle.id
    record.mkdir(parents=True)
    record.chmod(mode)
    config = {"ID": bundle.id, "Name": "/x", "Config": {"Labels": {"gpushim.gpus": "1"}}}
    for name, content in (("config.v2.json", config), ("hostconfig.json", {})):
        (record / name).write_text(json.dumps(content, separators=(",", ":")))
    (record / "hostname").write_text("")
    bundle.config["mounts"].append(
        {
            "destination": "/etc/hostname",
            "source": str(record / "hostname"),
            "type": "bind",
            "options": ["rbind"],
        }
    )
    bundle.write()
    outcome = ask.started(bundle)
    assert outcome.gpus == []
    assert outcome.untouched and not outcome.recorded
    assert f"{record} is not used" in outcome.warnings
    assert "labels and device requests do not count" in outcome.warnings
