"""The rig with a kernel of its own: what it is told to run, and what is left of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import cannot
from tests.images import ImageUnavailable
from tests.rigs.uml import Guest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("guest")]


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    """A guest without Docker and gpushim."""
    made = Guest("forky")
    try:
        made.boot()
        yield made
    except ImageUnavailable as reason:
        cannot(str(reason))
    finally:
        made.stop()


def test_its_kernel_is_another(guest: Guest) -> None:
    here = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert guest.read("/proc/sys/kernel/random/boot_id") != here
    assert guest.read("/proc/1/comm") == "systemd\n"
    assert guest.run("systemctl", "--failed", "--quiet", "--plain").stdout == ""


def test_programs(guest: Guest) -> None:
    done = guest.run("sh", "-c", "cat; echo $A >&2; exit 3", input="\u00e9\x04\x03\n", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "\u00e9\x04\x03\n", "\n")
    done = guest.run("sh", "-c", "echo $A >&2", environment={"A": "a b"})
    assert done.stderr == "a b\n"
    assert guest.run("there-is-none", check=False).returncode == 127
    assert len(guest.run("seq", "100000").stdout.splitlines()) == 100000
    with pytest.raises(AssertionError, match="false"):
        guest.run("false")
    with pytest.raises(subprocess.TimeoutExpired):
        guest.run("sleep", "60", timeout=0.2)


def test_files(guest: Guest) -> None:
    guest.write("/etc/made/file", "text\n", 0o600)
    assert guest.run("stat", "-c", "%a", "/etc/made/file").stdout == "600\n"
    (guest.shared / "out").write_text("from outside\n")
    assert guest.read(guest.shared / "out") == "from outside\n"
    guest.run("sh", "-c", f"echo inside >{guest.shared}/in")
    assert (guest.shared / "in").read_text() == "inside\n"


def test_its_kernel_stops(guest: Guest) -> None:
    """The last of this module: a test that waits is told, and nothing is left of the machine."""
    with pytest.raises(RuntimeError, match=r"kernel has stopped: (.|\n)*sysrq"):
        guest.run("sh", "-c", "echo c >/proc/sysrq-trigger")
    guest.stop()
    assert not guest.work.exists()
    assert str(guest.work) not in Path("/proc/self/mountinfo").read_text()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [words for words in commands if bytes(guest.work) in words]
