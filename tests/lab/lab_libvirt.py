"""Libvirt in a lab: Debian's daemon with its QEMU driver, as an installation would start it."""

from __future__ import annotations

from lab.lab_inside import Inside
from platforms.libvirt_embedded import CONFIGURED

PACKAGES = ("libvirt-daemon", "libvirt-daemon-driver-qemu")
SOCKET = "/run/libvirt/libvirt-sock"
# One of libvirt's drivers is kept, as in `virtqemud`: those of networks and devices want what a
# lab leaves out, such as D-Bus, and the daemon does not start without a driver that it has. Its
# user, who runs no domain here, is made by an installation, too.
_START = f"""
cd /usr/lib/x86_64-linux-gnu/libvirt/connection-driver
for driver in *; do [ "$driver" = libvirt_driver_qemu.so ] || rm "$driver"; done
echo libvirt-qemu:x:64055:101::/var/lib/libvirt:/bin/false >>/etc/passwd
echo libvirt-qemu:x:64055: >>/etc/group
mkdir -p /etc/libvirt /run/libvirt /dev/hugepages
mount -t hugetlbfs hugetlbfs /dev/hugepages
cat >/etc/libvirt/qemu.conf
echo 'auth_unix_rw = "none"' >/etc/libvirt/libvirtd.conf
setsid libvirtd >/var/log/libvirtd 2>&1 </dev/null &
for try in $(seq 600); do
    [ -S {SOCKET} ] && exit 0
    sleep 0.1
done
cat /var/log/libvirtd >&2
exit 1
"""


async def serve(lab: Inside) -> None:
    """Start the daemon in a lab that has its packages, and wait until it listens."""
    done = await lab.host.run(["sh", "-c", _START], input=CONFIGURED.encode(), timeout_s=120)
    assert done.ok, done.words()
