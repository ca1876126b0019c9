"""Which engine calls, by what it leaves in a call."""

from __future__ import annotations

import pytest
from gpushim.asker import engine_of


@pytest.mark.parametrize(
    ("root", "annotations", "engine"),
    [
        ("/run/docker/runtime-runc/moby", {}, "docker"),
        ("/run/docker/runtime-runc/moby/", {}, "docker"),
        # Docker 24 and later, with userns-remap.
        ("/var/run/docker/runtime-runc/moby-100000.100000", {}, "docker"),
        ("/run/x/moby-a.b", {}, ""),
        ("/run/x/moby-1", {}, ""),
        ("/run/x/moby-", {}, ""),
        ("/run/x/mobyx", {}, ""),
        ("", {"io.container.manager": "libpod"}, "podman"),
        ("/run/runc", {"io.kubernetes.cri-o.ContainerID": "x"}, "cri-o"),
        ("/run/containerd/runc/k8s.io", {"io.kubernetes.cri.container-type": "x"}, "containerd"),
        ("/run/containerd/runc/default", {}, "containerd"),
        ("/run/runc", {}, ""),
    ],
)
def test_engine(root: str, annotations: dict[str, str], engine: str) -> None:
    assert engine_of(root, annotations) == engine
