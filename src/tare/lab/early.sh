#!/bin/sh
# The first program of a lab host: finds the disk, lays a writable one over it, and goes there.
export PATH=/bin
say() { echo "tare-lab: $*" >/dev/console; }
fail() { say "failed: $*"; sleep 3600; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules); do
    insmod "/early/$module.ko" || fail "the module $module does not load"
done
mkdir -p /base /room /root-dir
for try in 1 2 3 4 5 6 7 8 9 10; do
    [ -b /dev/vdb ] && break
    sleep 0.1
done
mount -t ext4 -o ro /dev/vda /base || fail "the disk cannot be mounted"
mount -t ext4 -o noatime /dev/vdb /room || fail "the room for writing cannot be mounted"
mkdir -p /room/upper /room/work
mount -t overlay -o lowerdir=/base,upperdir=/room/upper,workdir=/room/work overlay /root-dir ||
    fail "the disk cannot be made writable"
cp -a /seed/. /root-dir/
for part in proc sys dev; do mount -o move "/$part" "/root-dir/$part"; done
exec switch_root /root-dir /usr/bin/busybox init
