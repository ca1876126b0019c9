"""gpushim's own keys: where they are said, and what their values mean.

They are the same as annotations and container labels (gpushim.KEY), as options of Docker's device
requests (KEY) and as variables (GPUSHIM_KEY, in capitals, with underscores for dashes).
"""

from __future__ import annotations

from gpushim.errors import GpushimError
from gpushim.request import keyvalues
from gpushim.request.nvidia import brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

# What gpushim says in a container of how a booked amount of memory is enforced; no request.
ENFORCEMENT = "GPUSHIM_MEMORY_ENFORCEMENT"
VARIABLE_PREFIX = "GPUSHIM_"

# Key -> what its value is, for a sentence, and how to write it, for a hint.
_FORMS = {
    "gpus": (
        "choice of GPUs",
        "Write how many (2), all, none, void, or which: device=0 for one index, 0,1 for several, "
        "UUIDs, MIG devices (0:1) or CDI names.",
    ),
    "memory": ("amount of GPU memory", "Write it as 8g, 8192m or 8GiB, or as 50% of each GPU's."),
    "compute": ("share of a GPU", "Write it as 50%, from 1% to 100%."),
    "mode": ("way to use a GPU", "Write exclusive or shared."),
    "model": (
        f"shell pattern of at most {keyvalues.LONGEST_MODEL} characters",
        "Write the model's name as 'gpushimctl inventory' shows it, with * for any part.",
    ),
    "compute-capability": (
        "compute capability",
        "Write it as 8.0 or >=8.0; other operators are > < <= = and !=.",
    ),
    "mig": ("MIG profile", "Write it as 'nvidia-smi mig -lgip' shows it, such as 1g.10gb."),
    "priority": (
        "priority",
        f"Write a whole number from -{keyvalues.LAST_PRIORITY} to {keyvalues.LAST_PRIORITY}; "
        "a greater one goes first.",
    ),
    "wait": ("time to wait", "Write it as 30s, 10m or 1h, or 0 for not at all."),
    "placement": ("placement", "Write link, pack or spread."),
    "numa": ("treatment of NUMA nodes", "Write bind, prefer or off."),
    "optional": ("yes or no", "Write true or false."),
    "ticket": ("ticket", "Write the 16 digits and letters that 'gpushimctl reserve' printed."),
}
KEYS = tuple(_FORMS)

# Key -> the words that it may be.
_WORDS = {
    "mode": ("exclusive", "shared"),
    "placement": ("link", "pack", "spread"),
    "numa": ("bind", "prefer", "off"),
}

_READERS = {
    "gpus": keyvalues.gpus,
    "memory": keyvalues.memory,
    "compute": keyvalues.percent,
    "model": keyvalues.model,
    "compute-capability": keyvalues.compute_capability,
    "mig": keyvalues.mig,
    "priority": keyvalues.priority,
    "wait": keyvalues.wait,
    "optional": keyvalues.optional,
    "ticket": keyvalues.ticket,
}


def from_variables(environment: Sequence[object]) -> dict[str, tuple[str, str]]:
    """Key -> (text, source) of the GPUSHIM_ variables; of the same, the last.

    One that is empty counts as not said. Raises GpushimError for a name that is not known.
    """
    found: dict[str, str] = {}
    for entry in environment:
        if isinstance(entry, str) and entry.startswith(VARIABLE_PREFIX):
            name, equals, value = entry.partition("=")
            # One container may hand its environment on to the next, with what gpushim tells there.
            if equals and name != ENFORCEMENT:
                found[name] = value
    said = {}
    for name, value in found.items():
        key = name[len(VARIABLE_PREFIX) :].lower().replace("_", "-")
        if name != variable_name(key) or key not in _FORMS:
            raise _unknown(f"variable {brief(name)}", key, [variable_name(known) for known in KEYS])
        if value.strip():
            said[key] = (value.strip(), f"environment {name}={brief(value)}")
    return said


def variable_name(key: str) -> str:
    """The variable that says a key."""
    return VARIABLE_PREFIX + key.upper().replace("-", "_")


def from_names(
    pairs: Iterable[tuple[str, object]], prefix: str, where: str
) -> dict[str, tuple[str, str]]:
    """Key -> (text, source) of annotations, labels or options of a device request.

    pairs: name and value; prefix: how the names of gpushim's begin, others are left out; where:
    "annotation", "label" or "option of the device request". One that is empty counts as not said.
    Raises GpushimError for a name that is not known, or a value that is no text.
    """
    said: dict[str, tuple[str, str]] = {}
    for name, value in pairs:
        if not name.startswith(prefix):
            continue
        key = name[len(prefix) :]
        if key not in _FORMS:
            shown = brief(name) if prefix else f"'{brief(name)}'"
            raise _unknown(f"{where} {shown}", key, [prefix + known for known in KEYS])
        if not isinstance(value, str):
            raise GpushimError(
                f"The {where} {name} has a value that is no text.",
                f"Write it in quotes. {_FORMS[key][1]}",
            )
        if value.strip():
            said[key] = (value.strip(), f"{where} {name}={brief(value)}")
        else:
            said.pop(key, None)
    return said


def _unknown(source: str, key: str, names: list[str]) -> GpushimError:
    """A key that is not known, with the nearest of `names`, which are in the order of KEYS."""
    import difflib

    near = difflib.get_close_matches(brief(key).lower(), KEYS, 1)
    guess = f" (did you mean {names[KEYS.index(near[0])]}?)" if near else ""
    return GpushimError(
        f"The {source} is not known to gpushim{guess}.", f"There are {', '.join(names)}."
    )


def parse(key: str, text: str, source: str) -> Any:
    """What a key's text means, as plain data.

    gpus: {"count": n} (0 for no GPU at all) or {"names": [...]} (["all"]; [] for the driver's
    files alone); memory: bytes, or "50%"; compute: percent; compute-capability: [operator,
    "8.0"]; wait: seconds; priority: a number; optional: a flag; all others: text. Raises
    GpushimError for what can't be read, with `source` in it.
    """
    if key not in _FORMS:
        raise _unknown(source, key, list(KEYS))
    what, hint = _FORMS[key]
    try:
        if key in _WORDS:
            return keyvalues.word(text.strip(), _WORDS[key])
        return _READERS[key](text.strip())
    except keyvalues.Unfit as error:
        hint = str(error) or hint
    except ValueError:
        pass
    raise GpushimError(f"'{brief(text)}' is no {what} ({source}).", hint)


def text_of(key: str, value: Any) -> str:
    """A text that `parse` makes this value of; for all keys but gpus."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # As no duration is written with an exponent.
        return f"{value:.3f}s"
    return "".join(value) if isinstance(value, list) else str(value)
