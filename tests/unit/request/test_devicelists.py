"""Mounts that name devices (facts: A.1, 2)."""

from __future__ import annotations

import posixpath

import pytest
from gpushim.request.devicelists import clean, devices_from_mounts
from hypothesis import given
from hypothesis import strategies as st

ROOT = "/var/run/nvidia-container-devices"


@pytest.mark.parametrize(
    ("names", "devices", "channels"),
    [
        (["0"], ["0"], []),
        (["all"], ["all"], []),
        # In the spec's order, each once.
        (["1", "0", "1"], ["1", "0"], []),
        (["GPU-a", "0:1", "MIG-b"], ["GPU-a", "0:1", "MIG-b"], []),
        (["MIG-GPU-a/1/0"], ["MIG-GPU-a/1/0"], []),
        (["cdi/nvidia.com/gpu/0"], ["nvidia.com/gpu=0"], []),
        (["cdi/nvidia.com/gpu=0"], ["nvidia.com/gpu=0"], []),
        (["cdi/vendor.com/net/a:b-c_d.e"], ["vendor.com/net=a:b-c_d.e"], []),
        (["cdi/vendor.com/net.a/1"], ["vendor.com/net.a=1"], []),
        (["cdi/nvidia.com/gpu=0", "cdi/nvidia.com/gpu/0", "1"], ["nvidia.com/gpu=0", "1"], []),
        (["imex/3", "imex/4", "imex/3"], [], ["3", "4"]),
        (["imex/0", "1"], ["1"], ["0"]),
        (["imex/x/y"], [], ["x/y"]),
        # Without anything behind it, it is a name like any other.
        (["imex"], ["imex"], []),
        (["cdi"], ["cdi"], []),
        # A malformed CDI name is ignored.
        (["0", "cdi/nvidia.com"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu="], ["0"], []),
        (["0", "cdi/nvidia.com/=0"], ["0"], []),
        (["0", "cdi/=0"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu/0/1"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu=a=b"], ["0"], []),
        (["0", "cdi/1nvidia.com/gpu/0"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu-/0"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu/-0"], ["0"], []),
        (["0", "cdi/nvidia.com/gpu/0:"], ["0"], []),
        (["0", "cdi/nvidia.com/g\u00fcu/0"], ["0"], []),
    ],
)
def test_names(names: list[str], devices: list[str], channels: list[str]) -> None:
    mounts = [("/dev/null", f"{ROOT}/{name}") for name in names]
    others = [("proc", "/proc"), ("/home", "/home")]
    assert devices_from_mounts([*others, *mounts]) == (devices, channels)


@pytest.mark.parametrize(
    ("source", "destination", "counts"),
    [
        ("/dev/null", f"{ROOT}/0", True),
        ("/dev//null/", f"{ROOT}/0", True),
        ("/dev/./x/../null", "/var/./run//nvidia-container-devices/0/", True),
        ("/../dev/null", f"/..{ROOT}/0", True),
        ("/dev/null", "/var/lib/../run/nvidia-container-devices/0", True),
        # Without /var it is another place.
        ("/dev/null", "/run/nvidia-container-devices/0", False),
        ("/dev/zero", f"{ROOT}/0", False),
        ("dev/null", f"{ROOT}/0", False),
        ("", f"{ROOT}/0", False),
        ("/dev/null", ROOT, False),
        ("/dev/null", f"{ROOT}/", False),
        ("/dev/null", f"{ROOT}/.", False),
        ("/dev/null", f"{ROOT}/..", False),
        ("/dev/null", f"{ROOT}-0", False),
        ("/dev/null", f"/x{ROOT}/0", False),
        ("/dev/null", f"{ROOT[1:]}/0", False),
        ("/dev/null", f"{ROOT}/../0", False),
        ("/dev/null", f"{ROOT}/cdi/nvidia.com", False),
    ],
)
def test_places(source: str, destination: str, counts: bool) -> None:
    assert devices_from_mounts([(source, destination)]) == ((["0"], []) if counts else None)


def test_no_mounts() -> None:
    assert devices_from_mounts([]) is None


paths = st.lists(st.sampled_from(["", ".", "..", "a", "b", "...", "\ud800"])).map("/".join)


@given(paths)
def test_cleaned_paths_mean_the_same(path: str) -> None:
    expected = posixpath.normpath(path)
    # POSIX leaves two slashes at the beginning to the system; Go does not.
    assert clean(path) == ("/" + expected.lstrip("/") if path.startswith("//") else expected)


places = st.sampled_from(["", "/", "/cdi/", "/imex/", "/cdi/a/b", "/../", "x"])


@given(st.lists(st.tuples(st.sampled_from(["/dev/null", "/"]) | st.text(), places, st.text())))
def test_no_mounts_raise(mounts: list[tuple[str, str, str]]) -> None:
    found = devices_from_mounts([(source, ROOT + place + end) for source, place, end in mounts])
    if found is not None:
        assert found[0] or found[1]
        for names in found:
            assert len(set(names)) == len(names)
            assert all(names)
