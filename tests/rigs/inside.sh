#!/bin/sh
# Turn fresh namespaces (mount, PID, IPC, UTS, network) into a rig's machine and be its first process.
#   inside.sh ROOT WORK CGROUPS
# ROOT is the read-only root file system, WORK a directory that is there at the same path inside, and
# CGROUPS is "host", "v2" or "systemd": the unified hierarchy with systemd as the first process. It
# prints "ready" when all is in place, and never ends by itself.
set -eu
lower=$1 work=$2 cgroups=$3

# What is written lies in memory: an overlay can't lie on an overlay, and it is gone with the rig.
mount -n -t tmpfs -o mode=755,size=6g rig "$work/layers"
mkdir "$work/layers/upper" "$work/layers/work" "$work/layers/data"
root=$work/root
mount -n -t overlay \
  -o "lowerdir=$lower,upperdir=$work/layers/upper,workdir=$work/layers/work" rig "$root"
mount -n -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -n -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
if [ "$cgroups" = host ]; then
  mount -n --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
else
  mount -n -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi

mount -n -t tmpfs -o mode=755,nosuid dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
while read -r name major minor; do
  mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done <<'NODES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229
net/tun 10 200
NODES
mount -n -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -n -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -n -t tmpfs -o mode=755 run "$root/run"
mount -n -t tmpfs -o mode=1777 tmp "$root/tmp"

# The engines' data: images lie in memory, too, and an overlay upon the rig's own is not possible.
for data in docker containers; do
  mkdir -p "$work/layers/data/$data" "$root/var/lib/$data"
  mount -n --bind "$work/layers/data/$data" "$root/var/lib/$data"
done
mkdir -p "$root$work/shared" "$root/old"
mount -n --bind "$work/shared" "$root$work/shared"

hostname rig
ip link set lo up
if [ "$cgroups" = systemd ]; then
  # No more than Docker needs is started, and nothing that belongs to a machine of its own.
  units=$root/etc/systemd/system
  mkdir -p "$units"
  printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' >"$units/rig.target"
  for unit in docker.service docker.socket systemd-udevd.service systemd-udev-trigger.service; do
    rm -f "$units"/*.wants/"$unit"
  done
fi
cd "$root"
pivot_root . old
if [ "$cgroups" = systemd ]; then
  cd /
  umount -n -l /old
  echo ready
  exec env -i container=rig PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=rig.target --show-status=0 </dev/null >/dev/null 2>&1
fi
# Its children are all that lose their parent, and each is waited for.
exec /bin/sh -c '
  cd /
  umount -n -l /old
  echo ready
  exec </dev/null >/dev/null 2>&1
  while :; do sleep 3600 & wait; done
'
