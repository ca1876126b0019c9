"""What images demand of the driver (facts: A.4)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gpushim.errors import GpushimError
from gpushim.request.requirements import Facts, check, check_each, requirements
from hypothesis import given
from hypothesis import strategies as st

A100 = Facts("12.4", "550.163.01", "8.0", "tesla")
# The kind of expression that NVIDIA's images have: a version of CUDA, or the drivers of
# data-centre boards that have it by forward compatibility.
USUAL = "cuda>=12.4 " + " ".join(
    f"brand={brand},driver>={major},driver<{major + 1}"
    for major in (470, 525, 535)
    for brand in ("tesla", "nvidia", "quadrortx")
)


@pytest.mark.parametrize(
    ("environment", "required"),
    [
        ([], []),
        (["NVIDIA_REQUIRE_CUDA=cuda>=12.4"], [("NVIDIA_REQUIRE_CUDA", "cuda>=12.4")]),
        (
            ["NVIDIA_REQUIRE_X=a", "PATH=/", "NVIDIA_REQUIRE_CUDA=b", "NVIDIA_REQUIRE_X=c"],
            [("NVIDIA_REQUIRE_X", "c"), ("NVIDIA_REQUIRE_CUDA", "b")],
        ),
        (["NVIDIA_REQUIRE_=x"], [("NVIDIA_REQUIRE_", "x")]),
        (["NVIDIA_REQUIRE_CUDA=", "NVIDIA_REQUIRE_X= "], []),
        (["NVIDIA_REQUIRE_JETPACK=x", "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS=y"], []),
        # Only of a legacy image, which this is not.
        (["CUDA_VERSION=99.0"], []),
    ],
)
def test_variables(environment: list[str], required: list[tuple[str, str]]) -> None:
    assert requirements(environment, legacy=False) == required
    for value in ("1", "t", "T", "true", "TRUE", "True"):
        assert requirements([*environment, f"NVIDIA_DISABLE_REQUIRE={value}"], False) == []
    for value in ("", "0", "yes", "on", "tRUE", " 1", "2"):
        environment = [*environment, f"NVIDIA_DISABLE_REQUIRE={value}"]
        assert requirements(environment, legacy=False) == required


@pytest.mark.parametrize(
    ("version", "needs"),
    [
        ("12.4.1", "cuda>=12.4"),
        ("v12.4.1", "cuda>=12.4"),
        ("12.4", "cuda>=12.4"),
        ("12", "cuda>=12.0"),
        ("8.0.61", "cuda>=8.0"),
        ("11.0.3-1", "cuda>=11.0"),
        ("11.0.3-rc.1+build-2", "cuda>=11.0"),
        ("11.0.3+build.x", "cuda>=11.0"),
        ("11.0-rc", "cuda>=11.0"),
        ("11-rc", "cuda>=11.0"),
        ("9.0." + "9" * 5000, "cuda>=9.0"),
        ("4294967295.4294967295", "cuda>=4294967295.4294967295"),
    ],
)
def test_version_of_a_legacy_image(version: str, needs: str) -> None:
    environment = ["NVIDIA_REQUIRE_X=arch>1", f"CUDA_VERSION={version}"]
    assert requirements(environment, legacy=True) == [
        ("NVIDIA_REQUIRE_X", "arch>1"),
        ("CUDA_VERSION", needs),
    ]


@pytest.mark.parametrize(
    "version",
    [
        "x",
        "",
        " ",
        "v",
        "vv1.0",
        "V1.0",
        "-1",
        "1.",
        ".1",
        "1..2",
        "1.2.3.4",
        "12.4 ",
        "12,4",
        "12.4.1-",
        "12.4.1+",
        "12.4.1-a..b",
        "12.4.1-a_b",
        "\u0661.0",
        "4294967296.0",
        "1.4294967296",
        "9" * 5000,
    ],
)
def test_version_that_is_none(version: str) -> None:
    environment = [f"CUDA_VERSION={version}"]
    with pytest.raises(GpushimError, match=r"CUDA_VERSION=.* is no version") as caught:
        requirements(environment, legacy=True)
    assert "NVIDIA_DISABLE_REQUIRE=1" in caught.value.hint
    assert requirements([*environment, "NVIDIA_DISABLE_REQUIRE=true"], legacy=True) == []
    assert requirements(environment, legacy=False) == []


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("cuda>=12.4", True),
        ("cuda>=12.5", False),
        ("cuda>=12", True),
        ("cuda>=9.2", True),
        ("cuda>12.4", False),
        ("cuda>12.3.9", True),
        ("cuda<=12.4.0", True),
        ("cuda<12.4", False),
        ("cuda<12.10", True),
        ("cuda<13", True),
        ("cuda=12.4", True),
        ("cuda=v12.4.0", True),
        ("cuda=12.4.0+build", True),
        ("cuda=12", False),
        ("cuda!=12.4", False),
        ("cuda!=12", True),
        # What comes before a release is less than it.
        ("cuda>12.4.0-rc1", True),
        ("cuda=12.4.0-rc1", False),
        ("driver>=550.163.1", True),
        ("driver>=550.163.02", False),
        ("driver>550.54.15", True),
        ("driver<551", True),
        ("driver<=550", False),
        ("arch>=7.5", True),
        ("arch>=8.6", False),
        ("brand=tesla", True),
        ("brand=Tesla", False),
        ("brand=tesl", False),
        ("brand!=geforce", True),
        ("brand!=tesla", False),
        ("brand<u", True),
        ("brand>=tesla", True),
        ("brand=", False),
        ("brand!=", True),
        ("brand==tesla", False),
        # A comma is and, a space is or, and the comma binds tighter.
        ("cuda>=12.4,driver>=550", True),
        ("cuda>=12.4,driver>=560", False),
        ("cuda>=99 driver>=550", True),
        ("cuda>=99 driver>=550,arch>=9.0", False),
        ("cuda>=99,driver>=550 arch>=8.0", True),
        ("cuda>=12.4 cuda>=99,driver>=99", True),
        ("  cuda>=12.4  ,, ", True),
        # What is not known is as if it were not written.
        ("foo=1", True),
        ("CUDA>=99", True),
        ("foo=1,cuda>=12.4", True),
        ("foo=1,cuda>=99", False),
        ("foo=1 cuda>=99", False),
        ("=1", True),
        ("foo!", True),
        ("", True),
        (USUAL, True),
    ],
)
def test_expressions(expression: str, met: bool) -> None:
    required = [("NVIDIA_REQUIRE_CUDA", expression)]
    if met:
        check(required, A100, "GPU 0")
        return
    with pytest.raises(GpushimError, match=r"^GPU 0 .*NVIDIA_REQUIRE_CUDA") as caught:
        check(required, A100, "GPU 0")
    assert f"({expression})" in caught.value.sentence
    assert "NVIDIA_DISABLE_REQUIRE=1" in caught.value.hint


@pytest.mark.parametrize(
    ("cuda", "driver", "brand", "met"),
    [
        ("12.4", "550.54.14", "tesla", True),
        ("12.4", "550.54.14", "geforce", True),
        ("11.4", "470.82", "tesla", True),
        ("11.4", "470.82.01", "nvidia", True),
        ("11.4", "470.82", "geforce", False),
        ("11.4", "460.32.03", "tesla", False),
        ("12.2", "535.104.05", "quadrortx", True),
        ("12.1", "530.30.02", "tesla", False),
    ],
)
def test_the_usual_expression(cuda: str, driver: str, brand: str, met: bool) -> None:
    facts = Facts(cuda, driver, "8.0", brand)
    required = [("NVIDIA_REQUIRE_CUDA", USUAL)]
    if met:
        check(required, facts, "GPU 0")
        return
    with pytest.raises(GpushimError) as caught:
        check(required, facts, "GPU 0")
    assert "meets none of the 10 alternatives" in caught.value.sentence
    assert "the image needs CUDA 12.4 or later, " in caught.value.sentence
    assert f"the driver {driver} offers CUDA {cuda}." in caught.value.sentence


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("cuda", "'cuda' has no operator"),
        ("cuda >=12", "'cuda' has no operator"),
        ("foo", "'foo' has no operator"),
        ("brand=tesla,x", "'x' has no operator"),
        ("cuda>=", "'' is no version"),
        ("cuda>=x", "'x' is no version"),
        ("cuda==12.4", "'=12.4' is no version"),
        ("cuda=>12.4", "'>12.4' is no version"),
        ("driver>=1.2.3.4", "'1.2.3.4' is no version"),
        ("arch=sm_80", "'sm_80' is no version"),
        ("cuda!12", "'cuda!12' has an operator that is not known"),
        ("cuda!x=3", "'cuda!x=3' has an operator that is not known"),
        ("cuda!<3", "'cuda!<3' has an operator that is not known"),
        ("cuda<1=2", "'1=2' is no version"),
        ("cuda>1<2", "'1<2' is no version"),
        ("cuda<<=1", "'<=1' is no version"),
        ("brand!tesla", "'brand!tesla' has an operator that is not known"),
        # Whatever else holds.
        ("cuda>=1 driver>=x", "'x' is no version"),
    ],
)
def test_malformed_expressions(expression: str, reason: str) -> None:
    required = [("NVIDIA_REQUIRE_X", "cuda>=99"), ("NVIDIA_REQUIRE_Y", expression)]
    with pytest.raises(GpushimError) as caught:
        check(required, A100, "GPU 0")
    assert f"NVIDIA_REQUIRE_Y is {expression}, where {reason}" in caught.value.sentence


@pytest.mark.parametrize(
    ("expression", "facts", "words", "hint"),
    [
        (
            "cuda>=12.6",
            A100,
            "the image needs CUDA 12.6 or later, the driver 550.163.01 offers CUDA 12.4.",
            "Use a newer driver, an image tag that is made for CUDA 12.4 or earlier, or",
        ),
        (
            "driver>=560",
            A100,
            "the image needs the driver 560 or later, here it is 550.163.01.",
            "Use a newer driver",
        ),
        (
            "driver<500",
            A100,
            "the image needs the driver before 500, here it is 550.163.01.",
            "Use another driver, an image tag that is made for the driver 550.163.01, or",
        ),
        (
            "arch>8.0",
            A100,
            "the image needs compute capability after 8.0, this one has 8.0.",
            "Ask for another GPU",
        ),
        (
            "brand=geforce",
            A100,
            "the image needs the brand geforce, this one is of the brand tesla.",
            "Ask for another GPU",
        ),
        (
            "cuda>=12",
            Facts(None, "550.1", None, None),
            "the image needs CUDA 12 or later, which can't be told here",
            "See what 'nvidia-smi' says",
        ),
        ("driver>=1", Facts("12.4", "", None, None), "driver 1 or later, which can't be", "See"),
        ("arch>=1", Facts("12.4", "550", None, None), "capability 1 or later, which can", "See"),
        ("brand!=x", Facts("12.4", "550", None, None), "brand other than x, which can't", "See"),
        ("cuda>=1", Facts("unknown", "550", None, None), "offers CUDA unknown.", "Use"),
        # Of several that do not hold, the version of CUDA tells most, then the driver.
        ("brand=x,driver>=999 arch>=99,cuda>=99", A100, "needs CUDA 99 or later", "Use a newer"),
        ("brand=x driver>=999", A100, "needs the driver 999 or later", "Use a newer driver"),
    ],
)
def test_sentences(expression: str, facts: Facts, words: str, hint: str) -> None:
    with pytest.raises(GpushimError) as caught:
        check([("NVIDIA_REQUIRE_CUDA", expression)], facts, "GPU 3 (NVIDIA A100)")
    assert caught.value.sentence.startswith("GPU 3 (NVIDIA A100) ")
    assert words in caught.value.sentence
    assert caught.value.hint.startswith(hint)


def test_all_variables_must_hold() -> None:
    required = [("NVIDIA_REQUIRE_A", "cuda>=1"), ("NVIDIA_REQUIRE_B", "cuda>=99")]
    with pytest.raises(GpushimError, match=r"does not meet NVIDIA_REQUIRE_B \(cuda>=99\)"):
        check(required, A100, "GPU 0")
    check(required[:1], A100, "GPU 0")
    check([], Facts(None, "", None, None), "GPU 0")


def test_all_that_is_checked_must_have_it() -> None:
    other = Facts("12.4", "550.163.01", "7.5", "geforce")
    each = [(A100, "GPU 0"), (other, "GPU 1"), (A100, "GPU 2")]
    check_each([("NVIDIA_REQUIRE_CUDA", "cuda>=12")], each)
    check_each([("NVIDIA_REQUIRE_CUDA", "cuda>=99")], [])
    with pytest.raises(GpushimError, match=r"^GPU 1 does not meet"):
        check_each([("NVIDIA_REQUIRE_CUDA", "arch>=8.0")], each)
    with pytest.raises(GpushimError, match="has no operator"):
        check_each([("NVIDIA_REQUIRE_CUDA", "arch")], [])


def test_a_long_expression_is_cut_in_sentences() -> None:
    with pytest.raises(GpushimError) as caught:
        check([("NVIDIA_REQUIRE_CUDA", "cuda>=99 " * 1000)], A100, "GPU 0")
    assert len(str(caught.value)) < 700


numbers = st.integers(0, 30)
versions = st.lists(numbers, min_size=1, max_size=3)


@given(versions, versions, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
def test_versions_are_compared_as_numbers(has: list[int], needs: list[int], sign: str) -> None:
    left, right = ([*version, 0, 0][:3] for version in (has, needs))
    met = {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[sign]
    expression = f"cuda{sign}{'.'.join(map(str, needs))}"
    facts = Facts(".".join(map(str, has)), "550", "8.0", "tesla")
    try:
        check([("NVIDIA_REQUIRE_CUDA", expression)], facts, "GPU 0")
    except GpushimError:
        assert not met
    else:
        assert met


# The order that semver.org 2.0 gives as its example.
ORDER = ["alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1"]


def test_what_is_before_a_release_is_compared_by_its_identifiers() -> None:
    releases = [f"1.0.0-{tag}" for tag in ORDER] + ["1.0.0"]
    for low, high in pairwise(releases):
        check([("X", f"cuda>{low},cuda>={low},cuda!={low}")], Facts(high, "1", "1", "x"), "GPU 0")
        check([("X", f"cuda<{high},cuda<={high}")], Facts(low, "1", "1", "x"), "GPU 0")


pieces = st.sampled_from(
    ["cuda", "driver", "arch", "brand", "foo", *"<>=!,. -+v", "12", "12.4", "tesla", ">=", "!="]
)


@given(
    st.lists(st.tuples(st.text(max_size=5), st.lists(pieces).map("".join) | st.text())),
    st.sampled_from([A100, Facts(None, "", None, None), Facts("x", "\u0661", "-", "\ud800")]),
)
def test_no_expression_raises_anything_but_our_error(
    required: list[tuple[str, str]], facts: Facts
) -> None:
    try:
        check(required, facts, "GPU 0")
    except GpushimError as error:
        assert error.hint
        assert str(error).isprintable()


@given(st.lists(pieces).map("".join) | st.text())
def test_no_cuda_version_raises_anything_but_our_error(version: str) -> None:
    try:
        (pair,) = requirements([f"CUDA_VERSION={version}"], legacy=True)
    except GpushimError as error:
        assert error.hint
    else:
        # What comes out can be read again.
        check([pair], Facts("4294967295.4294967295", "1", None, None), "GPU 0")
