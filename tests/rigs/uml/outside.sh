#!/bin/sh
# Run user-mode Linux in fresh namespaces (mount, PID, network), so that nothing of it outlives them.
#   outside.sh KERNEL ROOT WORK MEMORY LINE
# KERNEL is a root that has /usr/bin/linux.uml with its C library, ROOT the one that the guest starts
# from; neither is changed. WORK/shared has the same path in the guest. MEMORY: as "2048M". What the
# kernel and the guest's systemd print goes to standard output; descriptor LINE is the guest's ttyS0.
set -eu
kernel=$1 root=$2 work=$3 memory=$4 line=$5

here=$work/root
mount -n --bind "$kernel" "$here"
mount -n -o remount,bind,ro "$here"
mount -n -t proc proc "$here/proc"
mount -n -t tmpfs -o mode=755 dev "$here/dev"
while read -r name major minor; do
  mknod -m 666 "$here/dev/$name" c "$major" "$minor"
done <<'NODES'
null 1 3
zero 1 5
random 1 8
urandom 1 9
NODES
# The guest's memory is a file here, which its processes map to run from.
mount -n -t tmpfs -o mode=1777,size=100%,exec tmp "$here/tmp"
mkdir "$here/tmp/lower" "$here/tmp/shared"
mount -n --bind "$root" "$here/tmp/lower"
mount -n -o remount,bind,ro "$here/tmp/lower"
mount -n --bind "$work/shared" "$here/tmp/shared"

# What hostfs shows of the guest's root is what this chroot has.
exec chroot "$here" /usr/bin/env -i HOME=/tmp TMPDIR=/tmp /usr/bin/linux.uml \
  "mem=$memory" umid=guest uml_dir=/tmp/ seccomp=auto \
  con=null con0=null,fd:1 ssl=null "ssl0=fd:$line" quiet panic=-1 noreboot \
  root=none rootfstype=hostfs rootflags=/ ro init=/tmp/shared/boot.sh -- "$work"
