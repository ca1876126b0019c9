"""Where leases are kept: made by install, and at each boot by tmpfiles.d."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from gpushim.allocate.book import every, open_book
from gpushim.allocate.lease import Lease

from tests.harness.privateroot import Root

pytestmark = pytest.mark.e2e


def test_installed_and_removed(root: Root) -> None:
    places = root.places
    assert f"Would make the directory {places.leases}." in root.well("install", "--dry-run")
    root.well("install")
    assert stat.S_IMODE(os.stat(places.leases).st_mode) == 0o1777
    assert stat.S_IMODE(os.stat(places.lease_lock).st_mode) == 0o644
    lines = (root.path / "etc/tmpfiles.d/gpushim.conf").read_text().splitlines()
    assert f'd "{places.leases}" 1777 root root -' in lines
    assert f'f "{places.lease_lock}" 0644 root root -' in lines
    assert lines.index(f'd "{places.run}" 0755 root root -') < lines.index(
        f'd "{places.leases}" 1777 root root -'
    )
    with open_book(places) as book:
        book.put(Lease("a", "/run/none", (1, 1), []))
    root.well("install")
    assert [lease.id for lease in every(places)] == ["a"], "a second install leaves them"
    root.well("uninstall")
    assert not Path(places.run).exists()
