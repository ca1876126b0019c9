"""Why CDI devices cannot be given: the one error for all of them."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.cdi.state import State

# So many broken files of unknown kind are named at the most, and so many devices that there are.
_MAX_BROKEN = 3
_MAX_DEVICES = 8


def unresolvable(missing: list[str], state: State) -> GpushimError:
    """The error for devices that no spec file, or no usable one, describes.

    state: of it the spec_dirs, devices, conflicts and errors count.
    """
    several = "s" if len(missing) > 1 else ""
    reasons: list[str] = []
    unknown: list[str] = []
    for name in missing:
        paths = state["conflicts"].get(name)
        if paths:
            reasons.append(f"{name} is described by several files, {' and '.join(paths)}")
        else:
            unknown.append(name)
    kinds = {name.partition("=")[0] for name in unknown}
    if unknown:
        reasons.append(
            f"no usable spec file in {', '.join(state['spec_dirs'])} describes "
            + ", ".join(unknown)
        )
    broken = [error for error in state["errors"] if unknown and error["kind"] in kinds]
    broken += [error for error in state["errors"] if unknown and not error["kind"]][:_MAX_BROKEN]
    sentence = f"The CDI device{several} {', '.join(missing)} cannot be given: {'; '.join(reasons)}"
    sentence = ". ".join([sentence, *[error["sentence"].rstrip(".") for error in broken]]) + "."
    there = [name for name in state["devices"] if name.partition("=")[0] in kinds]
    hint = "`gpushimctl cdi list` shows the devices of this machine."
    if there:
        shown = ", ".join(there[:_MAX_DEVICES]) + (", ..." if len(there) > _MAX_DEVICES else "")
        hint = f"There are: {shown}. {hint}"
    return GpushimError(sentence, hint)
