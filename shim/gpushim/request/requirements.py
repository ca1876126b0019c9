"""What images demand of the driver and the GPU: NVIDIA_REQUIRE_*, or CUDA_VERSION in older ones.

The language: PROPERTY OPERATOR VALUE without blanks, as in cuda>=12.4. A comma means and, a space
means or, a comma binds tighter; of several variables all must hold. A property that is not known
counts as if it were not written. Source: NVIDIA/nvidia-container-toolkit 1.20,
internal/requirements (behaviour, tried case by case).
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request.nvidia import CUDA_VERSION, brief, variable, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Factor = tuple[str, str, str]  # property, operator, value
    # Three numbers, and what is before that release; see _version.
    Version = tuple[list[tuple[int, str]], tuple[int, list[tuple[int, int, str]]]]

PREFIX = "NVIDIA_REQUIRE_"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
# Of the integrated GPUs of Jetson boards; the vendor's toolkit leaves it out, too.
_JETPACK = "NVIDIA_REQUIRE_JETPACK"
# What Go's strconv.ParseBool reads as true.
_TRUE = ("1", "t", "T", "true", "TRUE", "True")

_BEFORE_EQUAL = ("!", "<", ">")
_VERSIONS = ("cuda", "driver", "arch")
_PROPERTIES = (*_VERSIONS, "brand")
_ALL_THE_SAME = f"set {DISABLE}=1 to start it all the same"


class Facts:
    """What the driver and a GPU have: None or "" where it is not known.

    cuda: newest version that the driver supports ("12.4"); driver: "550.163.01"; arch: the GPU's
    compute capability ("8.0"); brand: as NVIDIA_REQUIRE_CUDA has it ("tesla", "geforce").
    """

    __slots__ = ("arch", "brand", "cuda", "driver")

    def __init__(self, cuda: str | None, driver: str, arch: str | None, brand: str | None) -> None:
        self.cuda = cuda
        self.driver = driver
        self.arch = arch
        self.brand = brand


def requirements(environment: Sequence[object], legacy: bool) -> list[tuple[str, str]]:
    """(variable, expression) pairs that must hold, in the order of the environment.

    legacy: whether it is an image with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA, which needs
    that version. None hold where NVIDIA_DISABLE_REQUIRE is true. Raises GpushimError for a
    CUDA_VERSION of a legacy image that is no version.
    """
    if variable(environment, DISABLE) in _TRUE:
        return []
    found = [
        (name, value)
        for name, value in variables(environment, PREFIX).items()
        if value.strip() and not name.startswith(_JETPACK)
    ]
    if legacy:
        value = variable(environment, CUDA_VERSION) or ""
        found.append((CUDA_VERSION, f"cuda>={_major_minor(value)}"))
    return found


def check(required: Sequence[tuple[str, str]], facts: Facts, subject: str) -> None:
    """As `check_each`, for one."""
    check_each(required, [(facts, subject)])


def check_each(required: Sequence[tuple[str, str]], each: Sequence[tuple[Facts, str]]) -> None:
    """Raises GpushimError if not all of `required`, as `requirements` gives it, hold for each.

    each: facts, and what has them, for the sentence: "GPU 0 (NVIDIA A100)". An expression that
    can't be read is an error whatever the others say.
    """
    read = [(name, expression, _terms(name, expression)) for name, expression in required]
    for facts, subject in each:
        for name, expression, terms in read:
            if terms and not any(all(_holds(factor, facts) for factor in term) for term in terms):
                raise _unmet(f"{name} ({brief(expression)})", terms, facts, subject)


def _terms(name: str, expression: str) -> list[list[Factor]]:
    """The alternatives of an expression, each with the factors that must hold together."""
    terms = []
    for term in expression.split(" "):
        factors = [_factor(text, name, expression) for text in term.split(",") if text.strip()]
        known = [factor for factor in factors if factor is not None]
        if known:
            terms.append(known)
    return terms


def _factor(text: str, name: str, expression: str) -> Factor | None:
    """One comparison; None for a property that is not known."""
    # The sign that comes first is the operator: none of the properties has one in its name.
    for sign in "=<>":
        subject, there, value = text.partition(sign)
        operator = sign
        if sign == "=" and subject[-1:] in _BEFORE_EQUAL:
            operator = subject[-1] + sign
            subject = subject[:-1]
        if there and subject in _PROPERTIES:
            # Most are the number of a driver; images have a hundred of them.
            if subject in _VERSIONS and not (_is_number(value) or _version(value)):
                raise _malformed(name, expression, f"'{brief(value)}' is no version")
            return subject, operator, value
    ends = [place for place in map(text.find, "<>=!") if place >= 0]
    if not ends:
        raise _malformed(name, expression, f"'{brief(text)}' has no operator")
    if text[: min(ends)] in _PROPERTIES:
        raise _malformed(name, expression, f"'{brief(text)}' has an operator that is not known")
    return None


def _malformed(name: str, expression: str, reason: str) -> GpushimError:
    return GpushimError(
        f"What the image demands can't be read: {name} is {brief(expression)}, where {reason}.",
        f"Correct it (operators are = != < <= > >=), or {_ALL_THE_SAME}.",
    )


def _holds(factor: Factor, facts: Facts) -> bool:
    """Whether a comparison holds; never where what it compares is not known."""
    subject, operator, text = factor
    there = getattr(facts, subject)
    if not there:
        return False
    if subject in _VERSIONS:
        has, value = _version(there), _version(text)
        if has is None or value is None:
            return False
        less, equal = has < value, has == value
    else:
        less, equal = there < text, there == text
    return {
        "=": equal,
        "!=": not equal,
        "<": less,
        "<=": less or equal,
        ">": not less and not equal,
        ">=": not less,
    }[operator]


def _number(digits: str) -> tuple[int, str]:
    """A key to compare digits by as numbers; Python reads no integer of thousands of digits."""
    significant = digits.lstrip("0")
    return len(significant), significant


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _version(text: str) -> Version | None:
    """A key to compare versions by (semver.org 2.0, but up to three parts, zeros before them and a
    v allowed); None if it is no version. Build tags make no difference.
    """
    text, plus, build = text.removeprefix("v").partition("+")
    release, dash, before = text.partition("-")
    parts = release.split(".")
    if len(parts) > 3 or not all(_is_number(part) for part in parts):
        return None
    if (plus and not _are_tags(build)) or (dash and not _are_tags(before)):
        return None
    numbers = [_number(part) for part in parts]
    numbers += [_number("0")] * (3 - len(parts))
    if not dash:
        return numbers, (1, [])
    tags = [(0, *_number(tag)) if _is_number(tag) else (1, 0, tag) for tag in before.split(".")]
    return numbers, (0, tags)


def _are_tags(text: str) -> bool:
    """Whether it is identifiers of letters, digits and hyphens, with dots between them."""
    return text.isascii() and all(tag.replace("-", "0").isalnum() for tag in text.split("."))


def _major_minor(text: str) -> str:
    """MAJOR.MINOR of a CUDA_VERSION. Raises GpushimError if it is no version."""
    version = _version(text)
    # Of more than ten digits is no version of CUDA; the vendor's toolkit reads 32 bits.
    parts = version[0][:2] if version is not None else []
    numbers = [int(digits or "0") for length, digits in parts if length <= 10]
    if len(numbers) < 2 or max(numbers) >= 1 << 32:
        raise GpushimError(
            f"{CUDA_VERSION}={brief(text)} is no version, so that it can't be told what driver the "
            "image needs.",
            f"Correct the variable, or {_ALL_THE_SAME}.",
        )
    return f"{numbers[0]}.{numbers[1]}"


def _unmet(shown: str, terms: list[list[Factor]], facts: Facts, subject: str) -> GpushimError:
    """What to say if none of the alternatives holds: the factor that tells most, and the versions.

    The usual expression is a version of CUDA, or older drivers of some brands that have it by
    forward compatibility: what matters is the version of CUDA.
    """
    unmet = [factor for term in terms for factor in term if not _holds(factor, facts)]
    order = ("cuda", "driver")
    factor = min(unmet, key=lambda each: order.index(each[0]) if each[0] in order else len(order))
    needs, has = _words(factor, facts)
    if len(terms) > 1:
        meets = f"meets none of the {len(terms)} alternatives of {shown}"
    else:
        meets = f"does not meet {shown}"
    return GpushimError(f"{subject} {meets}: the image needs {needs}, {has}.", _hint(factor, facts))


def _words(factor: Factor, facts: Facts) -> tuple[str, str]:
    """What is needed, and what is there."""
    subject, operator, value = factor
    there = getattr(facts, subject)
    name = {"cuda": "CUDA", "arch": "compute capability"}.get(subject, f"the {subject}")
    needs = {
        "=": f"{name} {value}",
        "!=": f"{name} other than {value}",
        "<": f"{name} before {value}",
        "<=": f"{name} {value} or earlier",
        ">": f"{name} after {value}",
        ">=": f"{name} {value} or later",
    }[operator]
    if not there:
        return needs, "which can't be told here, since the driver gave no answer"
    has = {
        "cuda": f"the driver {facts.driver} offers CUDA {there}",
        "driver": f"here it is {there}",
        "arch": f"this one has {there}",
    }
    return needs, has.get(subject, f"this one is of the brand {there}")


def _hint(factor: Factor, facts: Facts) -> str:
    subject, operator, _ = factor
    there = getattr(facts, subject)
    if not there:
        return f"See what 'nvidia-smi' says, or {_ALL_THE_SAME}."
    if subject not in ("cuda", "driver"):
        return f"Ask for another GPU, or {_ALL_THE_SAME}."
    what = f"CUDA {there}" if subject == "cuda" else f"the driver {there}"
    if ">" in operator:
        return (
            f"Use a newer driver, an image tag that is made for {what} or earlier, or "
            f"{_ALL_THE_SAME}."
        )
    return f"Use another driver, an image tag that is made for {what}, or {_ALL_THE_SAME}."
