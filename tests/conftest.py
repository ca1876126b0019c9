"""Fixtures that all tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from tests import images
from tests.harness import Bundle, EngineUnavailable, PrivateDockerd, Runtime

# No test depends on how fast the machine is. In CI Hypothesis has a profile of its own, which knows
# no deadline either and draws the same examples each time.
if not os.environ.get("CI"):
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")


def cannot(reason: str) -> NoReturn:
    """Skip a test that this machine can't run, except where nothing may be skipped.

    Continuous integration sets TESTS_MUST_RUN: there a mirror that is down must not
    turn the whole end-to-end suite into a green row of skips.
    """
    if os.environ.get("TESTS_MUST_RUN"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Let a test, or a helper of its own, ask for an image that can't be built here."""
    try:
        return (yield)
    except images.ImageUnavailable as reason:
        cannot(str(reason))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine can't do, and keep all that need dockerd on one worker."""
    reason = ""
    if os.geteuid() != 0:
        reason = "end-to-end tests run as root"
    elif shutil.which("runc", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") is None:
        reason = "runc is not installed"
    for item in items:
        if item.get_closest_marker("docker"):
            item.add_marker(pytest.mark.xdist_group("docker"))
            item.add_marker(pytest.mark.e2e)
        if reason and not os.environ.get("TESTS_MUST_RUN") and item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def template() -> Callable[[str], Path]:
    """Return the template root of a test image, or skip with the reason there is none."""

    def get(name: str) -> Path:
        try:
            return images.image(name)
        except images.ImageUnavailable as reason:
            cannot(f"no image {name}: {reason}")

    return get


@pytest.fixture
def make_bundle(template: Callable[[str], Path]) -> Iterator[Callable[..., Bundle]]:
    """Make bundles (see ``Bundle``) that are removed after the test."""
    made: list[Bundle] = []

    def make(image: str = "busybox", *args: Any, **options: Any) -> Bundle:
        template(image)
        made.append(Bundle(image, *args, **options))
        return made[-1]

    yield make
    for bundle in made:
        bundle.close()


@pytest.fixture
def runc(make_bundle: Callable[..., Bundle]) -> Iterator[Runtime]:
    """Return plain runc with a state root of its own.

    It asks for ``make_bundle`` so that containers are deleted before their roots are.
    """
    with Runtime("runc") as runtime:
        yield runtime


@pytest.fixture(scope="session")
def dockerd(request: pytest.FixtureRequest) -> Iterator[PrivateDockerd]:
    """Return the session's dockerd; a test that changes its configuration changes it back."""
    engine = PrivateDockerd()
    try:
        engine.start()
    except EngineUnavailable as reason:
        engine.stop()
        cannot(str(reason))
    yield engine
    kept = None
    if request.session.testsfailed:
        kept = Path(tempfile.gettempdir(), f"gpushim-dockerd-{os.getpid()}.log")
        print(f"dockerd's log: {kept}")
    engine.stop(keep_log=kept)
