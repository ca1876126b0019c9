"""The table of configuration keys as documentation and as the file that install writes."""

from __future__ import annotations

import json

from ..config_file import allowed
from ..config_keys import KEYS, SECTIONS
from ..config_kinds import Key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..config import Value

_WIDTH = 96


def toml(value: Value) -> str:
    """A value as TOML writes it; JSON's texts, lists of texts and truth values are TOML's too."""
    if isinstance(value, dict):
        pairs = [f"{toml(name)} = {toml(member)}" for name, member in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    return json.dumps(value, ensure_ascii=False)


# What `install --default` sets, and the comment that goes with it.
FOR_DEFAULT_RUNTIME = {
    "request.all-from-environment": (
        "none",
        "Set by install --default: as the default runtime gpushim runs every container, and images "
        "of CUDA have NVIDIA_VISIBLE_DEVICES=all in them without anybody asking for GPUs. Ask by "
        "--gpus, by -e GPUSHIM_GPUS=all, or by the label or annotation gpushim.gpus.",
    )
}


def default_file(changed: dict[str, tuple[str, str]] | None = None) -> str:
    """A configuration file with every key in it, commented out.

    changed: full name -> value that is set, and why.
    """
    lines = [
        "# gpushim's configuration. Every key is shown with its default; `gpushimctl config` shows",
        "# the values that hold, and `gpushimctl config check` whether this file is right.",
    ]
    for section, doc in SECTIONS.items():
        lines += ["", *_comment(doc), f"[{section}]"]
        for key in KEYS:
            if key.section == section:
                lines += ["", *_comment(f"{key.doc} ({allowed(key)})")]
                if changed and key.full_name in changed:
                    value, reason = changed[key.full_name]
                    lines += [*_comment(reason), f"{key.name} = {toml(value)}"]
                else:
                    lines.append(f"#{key.name} = {toml(key.default)}")
    return "\n".join(lines) + "\n"


def markdown() -> str:
    """docs/configuration.md."""
    lines = [
        "# Configuration",
        "",
        "<!-- Made by `gpushimctl config --markdown` from shim/gpushim/config.py. -->",
        "",
        "gpushim reads `/etc/gpushim/config.toml` ([TOML](https://toml.io)). Every key has a",
        "default, and without the file all defaults hold. An edit is seen by the next container,",
        "without any command. A file that is wrong never stops a container that asks for no GPU;",
        "one that asks is refused with the reason. A key that is not in this list is an error, not",
        "a comment.",
        "",
        "    gpushimctl config          # the values that hold, and where each comes from",
        "    gpushimctl config check    # whether the file is right",
    ]
    for section, doc in SECTIONS.items():
        lines += ["", f"## [{section}]", "", doc, "", "| key | default | may be | meaning |"]
        lines.append("|---|---|---|---|")
        lines += [_row(key) for key in KEYS if key.section == section]
    return "\n".join(lines) + "\n"


def _row(key: Key) -> str:
    return f"| `{key.name}` | `{toml(key.default)}` | {allowed(key)} | {key.doc} |"


def _comment(text: str) -> list[str]:
    """`text` as comment lines."""
    lines = ["#"]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("#")
        lines[-1] += " " + word
    return lines
