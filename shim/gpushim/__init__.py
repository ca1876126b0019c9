"""gpushim: an OCI runtime that gives containers their NVIDIA GPUs and hands over to runc."""

__version__ = "0.1.0"
