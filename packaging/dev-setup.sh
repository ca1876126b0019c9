#!/bin/bash
# Install what building, testing and the demo need: Debian packages by name, then
# a virtual environment. It does nothing, fast, where everything is there already.
#   dev-setup.sh VENV
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}

packages=(docker.io runc crun containerd busybox-static musl-tools shellcheck gcc libc6-dev
  mmdebstrap debian-archive-keyring strace python3 python3-venv make ca-certificates iproute2)

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if command -v dpkg-query >/dev/null; then
  # Since Debian 13 the docker command has a package of its own.
  command -v docker >/dev/null || ! apt-cache show docker-cli >/dev/null 2>&1 || packages+=(docker-cli)
  missing=()
  for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
  if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ]; then
      export DEBIAN_FRONTEND=noninteractive
      apt-get update -q
      apt-get install -q -y --no-install-recommends "${missing[@]}"
      # On a machine without any package lists the question above had no answer.
      if ! command -v docker >/dev/null; then
        apt-get install -q -y --no-install-recommends docker-cli
      fi
    else
      echo "dev-setup: not root, so these packages stay missing: ${missing[*]}" >&2
    fi
  fi
else
  echo "dev-setup: not a Debian or Ubuntu machine; please install: ${packages[*]}" >&2
fi

# The environment is made anew when what it was made from has changed, and only then.
stamp=$venv/.gpushim-setup
want=$(cat pyproject.toml packaging/constraints-ci.txt "$0" | sha256sum)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && [ -x "$venv/bin/python" ] && exit 0
# The distribution's interpreter, since it is the one that gpushim runs with on most machines.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  --constraint packaging/constraints-ci.txt --editable '.[dev]'
echo "$want" >"$stamp"
