"""What a CDI spec made by gpushim tells its createContainer hook, as the hook's arguments."""

from __future__ import annotations

from gpushim.errors import GpushimError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = (
    *("--root", "--tree", "--layout", "--lib64", "--lib", "--mount", "--write", "--params"),
    *("--libraries", "--libraries32"),
)
_REGENERATE = "Make the CDI spec anew with `gpushimctl cdi generate`."


class Options:
    """What the spec tells its hook, as arguments `--name=value`.

    root: of the installation; tree: the driver tree on the host; files: whether each of its files
    is mounted by itself; lib64 and lib: where the
    container sees its libraries; libraries and libraries32: their names in cache order; mount:
    mount(8) by its absolute path; write: whether a root that is the container's own may be written
    to; params: whether the params file is to be covered; links: name of a DRM node -> name of its
    link in /dev/dri/by-path.
    """

    __slots__ = (
        "files",
        "lib",
        "lib64",
        "libraries",
        "libraries32",
        "links",
        "mount",
        "params",
        "root",
        "tree",
        "write",
    )

    def __init__(
        self,
        tree: str,
        lib64: str,
        lib: str,
        libraries: list[str],
        libraries32: list[str],
        mount: str,
        root: str = "",
        write: bool = True,
        params: bool = True,
        links: dict[str, str] | None = None,
        files: bool = False,
    ) -> None:
        self.tree = tree
        self.lib64 = lib64
        self.lib = lib
        self.libraries = libraries
        self.libraries32 = libraries32
        self.mount = mount
        self.root = root
        self.write = write
        self.params = params
        self.links = links or {}
        self.files = files

    def arguments(self) -> list[str]:
        """The arguments from which `parse` makes the same again."""
        made = [
            f"--root={self.root}",
            f"--tree={self.tree}",
            f"--layout={'files' if self.files else 'tree'}",
            f"--lib64={self.lib64}",
            f"--lib={self.lib}",
            f"--mount={self.mount}",
            f"--write={int(self.write)}",
            f"--params={int(self.params)}",
            f"--libraries={'/'.join(self.libraries)}",
            f"--libraries32={'/'.join(self.libraries32)}",
        ]
        return made + [f"--link={node}/{link}" for node, link in self.links.items()]


def parse(arguments: Sequence[str]) -> Options:
    """Reads what `Options.arguments` made. Raises GpushimError for anything else."""
    values: dict[str, str] = {}
    links: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "--link":
            node, _, link = value.partition("/")
            links[node] = link
        elif not equals or name not in _NAMES or name in values:
            raise GpushimError(f"{argument[:80]!r} is not an option of this hook.", _REGENERATE)
        values[name] = value
    missing = [name for name in _NAMES if name not in values]
    if missing:
        raise GpushimError(f"The hook was given no {missing[0]}.", _REGENERATE)
    return Options(
        tree=values["--tree"],
        lib64=values["--lib64"],
        lib=values["--lib"],
        libraries=[name for name in values["--libraries"].split("/") if name],
        libraries32=[name for name in values["--libraries32"].split("/") if name],
        mount=values["--mount"],
        root=values["--root"],
        write=values["--write"] == "1",
        params=values["--params"] == "1",
        links=links,
        files=values["--layout"] == "files",
    )
