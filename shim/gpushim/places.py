"""Where one installation of gpushim keeps its files.

Everything lies at fixed places beneath one root, which is empty for a machine's own installation.
Another root gives a private installation (the demo and the end-to-end tests use one).
"""

from __future__ import annotations


class Places:
    """Absolute paths of an installation's files and directories.

    etc: configuration; run: state that ends with the boot; lib: driver trees and the installation
    record, which outlive it; log: gpushim's own log; bin: the two programs.
    """

    __slots__ = ("bin", "etc", "lib", "log", "root", "run")

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")
        self.etc = self.root + "/etc/gpushim"
        self.run = self.root + "/run/gpushim"
        self.lib = self.root + "/var/lib/gpushim"
        self.log = self.root + "/var/log/gpushim"
        self.bin = self.root + "/usr/local/bin"

    @property
    def config(self) -> str:
        return self.etc + "/config.toml"

    @property
    def snapshot(self) -> str:
        """The cached inventory, configuration and their fingerprint."""
        return self.run + "/host.json"

    @property
    def read_config(self) -> str:
        """The configuration as last read, for when there is no snapshot."""
        return self.run + "/config.json"

    @property
    def refusals(self) -> str:
        """Why containers were refused: one file per container, the latest of them."""
        return self.run + "/refused"

    @property
    def refresh_lock(self) -> str:
        return self.run + "/refresh.lock"

    @property
    def cdi(self) -> str:
        """Which CDI devices there are, and which spec files say so."""
        return self.run + "/cdi.json"

    @property
    def cdi_specs(self) -> str:
        """What each CDI spec file says, one file for each, named by its content."""
        return self.run + "/cdi"

    @property
    def cdi_lock(self) -> str:
        return self.run + "/cdi.lock"

    @property
    def containers(self) -> str:
        """One directory per container that got a grant, named by its id."""
        return self.run + "/containers"

    @property
    def leases(self) -> str:
        """What containers have booked, one file for each; any user may write one (mode 1777)."""
        return self.run + "/leases"

    @property
    def lease_lock(self) -> str:
        """Locked by whoever looks at leases in order to book."""
        return self.run + "/leases.lock"

    @property
    def leases_aside(self) -> str:
        """Files that were among the leases and are none that can be read."""
        return self.run + "/leases.aside"

    @property
    def use(self) -> str:
        """What GPUs are really used for, as the exporter has seen it last."""
        return self.run + "/use.json"

    @property
    def drained(self) -> str:
        """The devices that get no new containers; an administrator's word, so it outlives boots."""
        return self.lib + "/drained.json"

    @property
    def quarantine(self) -> str:
        """GPUs that failed while containers had them, one file for each."""
        return self.run + "/quarantine"

    @property
    def queue(self) -> str:
        """Tickets of who waits for GPUs, one file for each; any user may write one (mode 1777)."""
        return self.run + "/queue"

    @property
    def driver_trees(self) -> str:
        return self.lib + "/driver"

    @property
    def loader_caches(self) -> str:
        """Merged loader caches, to be mounted over those of images that must not be written to."""
        return self.run + "/loader-cache"

    @property
    def by_path(self) -> str:
        """Directories of links to the nodes in /dev/dri, one for each set of GPUs that draw."""
        return self.run + "/by-path"

    @property
    def params(self) -> str:
        """A copy of the driver's params file that tells programs to make no device nodes."""
        return self.run + "/params"

    @property
    def launcher(self) -> str:
        return self.bin + "/gpushim"

    @property
    def launcher_settings(self) -> str:
        """Shell assignments that the launcher reads: what it needs of the configuration."""
        return self.lib + "/launcher.conf"

    @property
    def installation(self) -> str:
        """What install did, as JSON, for uninstall; it also names the interpreter for refresh."""
        return self.lib + "/installation.json"

    @property
    def default_log_file(self) -> str:
        return self.log + "/gpushim.log"
