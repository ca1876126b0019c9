"""Root file systems for tests: small, built here, and cached by what they are made of.

``image(name)`` returns a template directory that nobody may write to; ``copy(name,
dest)`` gives a test a root of its own.  The names are those of ``recipes.RECIPES``:

* ``busybox``, ``scratch``: static programs alone; ``scratch`` has no ``/etc`` at all;
* ``debian``, ``debian13``: minimal systems made by mmdebstrap from the mirror that
  this machine's apt uses;
* ``debian32``: ``debian`` with a C library for 32-bit programs beside its own;
* ``ubuntu-like``: real Ubuntu where apt's mirror is Ubuntu's.  Elsewhere it is Debian
  13 under Ubuntu's name: both have the same multiarch layout and loader cache;
* ``fedora-like``: Debian's programs in Fedora's layout.  Their loader doesn't know
  ``/usr/lib64``, so every library is found through the cache or not at all;
* ``distroless``: loader, libc and the probe; no shell, no ldconfig, no cache;
* ``musl``: musl's loader and a dynamically linked probe, with a static busybox.

Each has ``/usr/local/bin/probe`` (probe.c says what it can do).  Building needs root;
what can't be built on a machine raises ``ImageUnavailable`` with the reason.
"""

from __future__ import annotations

from tests.images.cache import copy, image
from tests.images.recipes import GLIBC, RECIPES
from tests.images.tools import ImageUnavailable

NAMES = tuple(RECIPES)

__all__ = ["GLIBC", "NAMES", "ImageUnavailable", "copy", "image"]
