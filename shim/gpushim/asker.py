"""Who asks: the container that something is booked for, as far as its lease names it."""

from __future__ import annotations

from gpushim.decision import state_root_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpushim.main import Call
    from gpushim.oci.bundle import Bundle
    from gpushim.request.gather import Asked


class Asker:
    """The container that something is booked for, as far as its lease names it."""

    __slots__ = ("call", "cgroup", "engine", "labels", "name", "state_root")

    def __init__(self, call: Call, bundle: Bundle, asked: Asked) -> None:
        self.call = call
        self.state_root = state_root_of(call)
        cgroup = bundle.section("linux", "cgroupsPath")
        self.cgroup = cgroup if isinstance(cgroup, str) else ""
        self.name = asked.record.name if asked.record is not None else ""
        self.labels = asked.record.labels if asked.record is not None else {}
        self.engine = engine_of(call.invocation.root, asked.annotations)


def is_dockers(root: str) -> bool:
    """Whether a state root (--root) is one of Docker's.

    Its last part is containerd's namespace: "moby", and "moby-UID.GID" where Docker remaps users
    (moby, daemon/config, ContainerdNamespace).
    """
    namespace = root.rstrip("/").rpartition("/")[2]
    if namespace == "moby":
        return True
    uid, _, gid = namespace.removeprefix("moby-").partition(".")
    return namespace.startswith("moby-") and uid.isdigit() and gid.isdigit()


def engine_of(root: str, annotations: dict[str, str]) -> str:
    """Which engine called, by what each leaves in a call or a spec; "" where nothing tells."""
    if is_dockers(root):
        return "docker"
    if annotations.get("io.container.manager") == "libpod":
        return "podman"
    # A container may have thousands.
    named = [name for name in annotations if name.startswith("io.kubernetes.cri")]
    if any(name.startswith("io.kubernetes.cri-o.") for name in named):
        return "cri-o"
    if any(name.startswith("io.kubernetes.cri.") for name in named):
        return "containerd"
    return "containerd" if "/containerd/" in root else ""
