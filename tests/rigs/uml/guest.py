"""A rig with a kernel of its own: user-mode Linux, systemd, and every controller but cpuset."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests import images
from tests.rigs import roots
from tests.rigs.rig import PATH, Completed, Rig
from tests.rigs.uml.line import Line

# The suite whose kernel it is, whichever the guest's own suite is.
_KERNEL = "forky"
_MEMORY = "2048M"
_HERE = Path(__file__).parent
_INSIDE = ("boot.sh", "agent.py")
_SECONDS = 120


class Guest(Rig):
    """One machine, used as any other rig. ``suite`` is one whose packages have systemd.

    Its kernel has no cpuset controller (that needs more than one processor), no network, and of the
    devices only those that are part of every kernel.
    """

    def __init__(self, suite: str) -> None:
        super().__init__(suite)
        self._console = self.work / "console.log"
        self._line = Line(self._trouble)

    def boot(self) -> None:
        """Start it as ``start`` does, but without Docker and gpushim."""
        self._boot(roots.root(self.suite))

    def _boot(self, lower: Path) -> None:
        kernel = roots.root(_KERNEL)
        if not (kernel / "usr/bin/linux.uml").exists():
            raise images.ImageUnavailable("there is no user-mode Linux for this processor")
        for name in _INSIDE:
            shutil.copy(_HERE / name, self.shared / name)
            (self.shared / name).chmod(0o755)
        line = self._line.theirs.fileno()
        with self._console.open("wb") as log:
            self._machine = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork"),
                    *("--net", "--kill-child", "--propagation", "private"),
                    *("/bin/sh", str(_HERE / "outside.sh"), str(kernel), str(lower)),
                    *(str(self.work), _MEMORY, str(line)),
                ],
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(line,),
            )
        self._line.wait(_SECONDS)

    def _trouble(self) -> str:
        """What has become of the guest, with its last words; "" while it runs.

        After a panic the program that it is would stay for good.
        """
        said = self._console.read_text(errors="replace")
        if self._machine is not None and self._machine.poll() is not None:
            return f"the guest has ended: {said[-4000:]}"
        return f"the guest's kernel has stopped: {said[-4000:]}" if "Kernel panic" in said else ""

    def run(
        self,
        *words: str | Path,
        input: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
    ) -> Completed:
        done = self._line.run([str(w) for w in words], input or "", environment or {}, timeout)
        if check:
            assert done.returncode == 0, f"{done.args}: {done.stdout}{done.stderr}"
        return done

    def _imported(self, name: str, engine: str) -> str:
        tag = f"localhost/test-{name}:1"
        if f"{engine} {name}" not in self._images:
            tar = self.shared / f"{name}.tar"
            files = ["tar", "-C", str(images.image(name)), "--numeric-owner", "-cf", str(tar), "."]
            subprocess.run(files, check=True)
            self.run(engine, "import", tar, tag)
            tar.unlink()
            self._images[f"{engine} {name}"] = tag
        return tag

    @property
    def systemd(self) -> bool:
        return True

    def _wait_for_systemd(self) -> None:
        """It has begun long ago: the line is one of its services."""

    def stop(self) -> None:
        super().stop()
        self._line.close()
