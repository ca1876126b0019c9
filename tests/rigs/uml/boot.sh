#!/bin/sh
# The guest's first program: make a root that can be written, and become systemd in it.
#   boot.sh WORK
# What runs here was started by outside.sh: /tmp/lower is the root to be, /tmp/shared is WORK/shared.
set -eu
work=$1
PATH=/usr/sbin:/usr/bin:/sbin:/bin

insmod "/usr/lib/uml/modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko"
# What is written lies in memory, and the engines' data beside it: an overlay can't lie on an overlay.
mount -n -t tmpfs -o mode=755,size=90% layers /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/root /mnt/docker /mnt/containerd
mount -n -t hostfs -o hostfs=/tmp/lower,ro none /mnt/lower
root=/mnt/root
mount -n -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work rig "$root"
for engine in docker containerd; do
  mkdir -p "$root/var/lib/$engine"
  mount -n --bind "/mnt/$engine" "$root/var/lib/$engine"
done
mkdir -p "$root$work/shared"
mount -n -t hostfs -o hostfs=/tmp/shared none "$root$work/shared"
# Debian keeps the modules of this kernel apart from those of others.
mkdir -p "$root/lib/modules"
mount -n -t hostfs -o hostfs=/usr/lib/uml/modules,ro none "$root/lib/modules"

units=$root/etc/systemd/system
mkdir -p "$units/rig.target.wants"
for unit in systemd-udevd systemd-udev-trigger systemd-timesyncd systemd-firstboot \
  systemd-hwdb-update ldconfig systemd-networkd systemd-pstore; do
  ln -sf /dev/null "$units/$unit.service"
done
ln -sf /dev/null "$units/getty.target"
cat >"$units/rig.target" <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target
UNIT
cat >"$units/rig-agent.service" <<UNIT
[Unit]
After=basic.target
[Service]
Environment=HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/usr/bin/python3 -I -S $work/shared/agent.py /dev/ttyS0
UNIT
ln -s ../rig-agent.service "$units/rig.target.wants/"
: >"$root/etc/fstab"
: >"$root/etc/machine-id"
touch "$root/etc/.updated" "$root/var/.updated"

# As switch_root does it: the first root stays below, where nobody sees it.
cd "$root"
mount -n --move . /
exec chroot . /lib/systemd/systemd --system --unit=rig.target --show-status=0
