"""The options of `gpushimctl install`."""

from __future__ import annotations

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--default", action="store_true", help="make gpushim Docker's default runtime, too"
    )
    parser.add_argument(
        "--config",
        metavar="PATH",
        default="",
        help="Docker's configuration file (without it /etc/docker/daemon.json)",
    )
    parser.add_argument(
        "--pidfile",
        metavar="PATH",
        default="",
        help="the pid file of the dockerd to reload (without it the one that daemon.json names, or "
        "/var/run/docker.pid; a dockerd whose command line names the file is found by itself)",
    )
    parser.add_argument(
        "--swarm",
        action="store_true",
        help="have Docker Swarm hand out this node's GPUs (NVIDIA-GPU); implies --default",
    )
    parser.add_argument(
        "--swarm-slots",
        type=int,
        metavar="N",
        default=0,
        help="the same in N parts of each GPU (NVIDIA-GPU-SLOT), for services that share",
    )
    parser.add_argument(
        "--restart", action="store_true", help="restart dockerd where a change needs it"
    )
    parser.add_argument("--no-docker", action="store_true", help="leave Docker alone")
    parser.add_argument(
        "--config-from",
        metavar="FILE",
        default="",
        help="take config.toml from FILE (one that was edited is kept as a copy)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be changed, and change nothing"
    )
