"""Which containers a process is in: every form of cgroup name that engines are known to make."""

from __future__ import annotations

import pytest
from gpushim.allocate.attribution import Named, containers, first_known, paths, pod
from hypothesis import given
from hypothesis import strategies as st

A = "a" * 64
B = "0123456789abcdef" * 4
UID = "6a9b3c1e-77aa-4b5e-9a57-0c1d2e3f4a5b"
LOW = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # B72
        (f"/system.slice/docker-{A}.scope", [Named(A, "docker")]),
        (f"/docker/{A}", [Named(A, "docker")]),
        (f"/machine.slice/libpod-{A}.scope", [Named(A, "podman")]),
        (f"/machine.slice/libpod-{A}.scope/container", [Named(A, "podman")]),
        (f"/libpod_parent/libpod-{A}", [Named(A, "podman")]),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container",
            [Named(A, "podman")],
        ),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope",
            [Named(A, "docker")],
        ),
        (f"/system.slice/crio-{A}.scope", [Named(A, "cri-o")]),
        (f"/system.slice/crio-{A}.scope/container/sub", [Named(A, "cri-o")]),
        (f"/system.slice/nerdctl-{A}.scope", [Named(A, "containerd")]),
        (f"/default/{A}", [Named(A, "")]),
        (f"/system.slice/docker-{A}.scope/init.scope", [Named(A, "docker")]),
        (f"/custom-parent/{A}", [Named(A, "")]),
        # The monitor of a container is not in it.
        (f"/machine.slice/libpod-conmon-{A}.scope", []),
        (f"/machine.slice/crio-conmon-{A}.scope", []),
        # B73
        (
            f"/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{A}.scope",
            [Named(A, "containerd")],
        ),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice/"
            f"crio-{A}.scope",
            [Named(A, "cri-o")],
        ),
        (f"/kubepods/besteffort/pod{UID}/{A}", [Named(A, "")]),
        (f"/kubepods/pod{UID}/{A}", [Named(A, "")]),
        (f"/kubepods/burstable/pod{UID}/crio-{A}", [Named(A, "cri-o")]),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{LOW}.slice:cri-containerd:{A}",
            [Named(A, "containerd")],
        ),
        # B75
        (f"/../docker-{A}.scope", [Named(A, "docker")]),
        (f"/../../docker/{A}", [Named(A, "docker")]),
        # B76
        (f"/system.slice/docker-{A}.scope/docker/{B}", [Named(A, "docker"), Named(B, "docker")]),
        (
            f"/docker/{A}/kubelet/kubepods/besteffort/pod{UID}/cri-containerd-{B}.scope",
            [Named(A, "docker"), Named(B, "containerd")],
        ),
        # None of anybody's.
        ("/", []),
        ("", []),
        ("/user.slice/user-1000.slice/session-2.scope", []),
        ("/system.slice/docker.service", []),
        (f"/docker/{A[:12]}", []),
        (f"/docker/{A}0", []),
        (f"/docker/{A.upper()}", []),
        (f"/docker/{A}/..", [Named(A, "docker")]),
    ],
)
def test_forms(path: str, expected: list[Named]) -> None:
    assert containers(path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{A}.scope", UID),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice", UID),
        (f"/kubepods/besteffort/pod{UID}/{A}", UID),
        (f"/kubepods/pod{UID.replace('-', '')}/{A}", UID.replace("-", "")),
        (f"/system.slice/containerd.service/kubepods-pod{LOW}.slice:cri-containerd:{A}", UID),
        (f"/machine.slice/libpod-{A}.scope", ""),
        ("/podman/pod", ""),
        ("/", ""),
    ],
)
def test_pods(path: str, expected: str) -> None:
    """B73."""
    assert pod(path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/system.slice/a.scope\n", ["/system.slice/a.scope"]),
        ("0::/\n", []),
        ("0::/../b.scope\n", ["/../b.scope"]),
        ("12:cpu,cpuacct:/x\n3:pids:/x\n1:name=systemd:/y\n0::/\n", ["/x", "/y"]),
        ("0::/a:b/c:d\n", ["/a:b/c:d"]),
        ("0::/docker/x (deleted)\n", ["/docker/x"]),
        ("", []),
        ("nonsense\n", []),
    ],
)  # fmt: skip
def test_what_proc_says(text: str, expected: list[str]) -> None:
    assert paths(text) == expected


@pytest.mark.parametrize(
    ("path", "ids", "expected"),
    [
        (f"/system.slice/docker-{A}.scope/docker/{B}", {A}, A),
        (f"/system.slice/docker-{A}.scope/docker/{B}", {B}, B),
        (f"/system.slice/docker-{A}.scope/docker/{B}", {A, B}, A),
        ("/test/my-container", {"my-container"}, "my-container"),
        ("/machine.slice/libpod-web.scope/container", {"web"}, "web"),
        ("/user/mine.scope", {"mine.scope", "other"}, "mine.scope"),
        (f"/machine.slice/libpod-conmon-{A}.scope", {A}, ""),
        ("/a/b-web", {"web"}, ""),
        ("/", {""}, ""),
    ],
)
def test_known_ones(path: str, ids: set[str], expected: str) -> None:
    """B76: of nested containers it is the one that has a lease, and the outer one if both have."""
    assert first_known([path], ids) == expected


@given(st.text(), st.sets(st.text()))
def test_any_text(text: str, ids: set[str]) -> None:
    for path in [text, *paths(text)]:
        for named in containers(path):
            assert named.id in path
        assert pod(path) == "" or pod(path).replace("-", "_") in path.replace("-", "_")
        assert first_known([path], ids) in {"", *ids}
