"""MIG profiles: which is at least another, and which is the smaller one.

A profile is [COMPUTEc.]SLICESg.MEMORYgb and attributes, such as 1c.3g.40gb or 1g.10gb+me (NVIDIA's
MIG user guide, "MIG device names"). Imported only where MIG devices are chosen.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Measures = tuple[int, int, int]


def measures(profile: str) -> Measures:
    """Gigabytes, slices of compute, and slices of the GPU that it is cut from.

    All of them 0 for what is no profile.
    """
    size = profile.lower().replace("-", "+").partition("+")[0]
    parts = size.split(".")
    # A compute instance that has all of its GPU instance goes without a part of its own.
    compute = parts[0] if len(parts) == 3 else parts[0][:-1] + "c"
    numbers = [_number(parts[-1], "gb"), _number(compute, "c"), _number(parts[-2:][0], "g")]
    return (numbers[0], numbers[1], numbers[2]) if all(numbers) else (0, 0, 0)


def _number(text: str, unit: str) -> int:
    digits = text[: -len(unit)]
    return int(digits) if text.endswith(unit) and digits.isascii() and digits.isdigit() else 0


def covers(profile: str, wanted: str) -> bool:
    """Whether a MIG device of `profile` has all that one of `wanted` has.

    A profile that is known to be no such thing covers only itself.
    """
    if profile.lower() == wanted.lower():
        return True
    have, want = measures(profile), measures(wanted)
    if not all(have) or not all(want) or any(h < w for h, w in zip(have, want, strict=True)):
        return False
    plus, minus = _attributes(profile)
    wanted_plus, wanted_minus = _attributes(wanted)
    return wanted_plus <= plus and minus <= wanted_minus


def _attributes(profile: str) -> tuple[set[str], set[str]]:
    """What a profile has beyond (+me, +gfx), and what it lacks (-me)."""
    signs = profile.lower().replace("+", " +").replace("-", " -").split(" ")[1:]
    plus = {sign[1:] for sign in signs if sign[0] == "+"}
    return plus, {sign[1:] for sign in signs if sign[0] == "-"}
