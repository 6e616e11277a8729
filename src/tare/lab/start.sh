#!/bin/sh
# Starts what a lab host needs to be logged in to, and the hypervisor's toolstack.
export PATH=/usr/sbin:/usr/bin
say() { echo "tare-lab: $*" >/dev/console; }
fail() { say "failed: $*"; exit 1; }
. /etc/tare/lab

mount -t tmpfs -o mode=755 run /run
# A package brings this as a directory; Xen's tools look there for what they keep in /run.
[ -L /var/run ] || { rm -rf /var/run; ln -s /run /var/run; }
mkdir -p /run/lock /run/sshd /dev/pts /dev/shm /run/xen /run/xenstored
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mount -t tracefs tracing /sys/kernel/tracing 2>/dev/null
chmod 1777 /tmp /dev/shm
modprobe loop
for module in tun bridge veth openvswitch vhost_net nf_conntrack; do modprobe "$module"; done
# Elsewhere udev makes these; Xen's scripts for disks wait for ever without them.
ln -s /proc/self/fd /dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "/dev/${number#*:}"; done
hostname lab
ip link set lo up
ip link set eth0 up || fail "there is no network device"
ip address add 10.0.2.15/24 dev eth0
/usr/sbin/sshd -f /etc/tare/sshd_config || fail "the SSH server does not start"

start_xen() {
    [ "$(cat /sys/hypervisor/type 2>/dev/null)" = xen ] || fail "this is not Xen's dom0"
    mount -t xenfs xenfs /proc/xen 2>/dev/null || { modprobe xenfs; mount -t xenfs xenfs /proc/xen; } ||
        fail "there is no /proc/xen"
    for module in xen-evtchn xen-gntdev xen-gntalloc xen-privcmd; do
        modprobe "$module" || fail "the module $module does not load"
    done
    tools=$(echo /usr/lib/xen-[0-9]*/bin)
    [ -x "$tools/xenstored" ] || fail "the toolstack is missing: there is no $tools/xenstored"
    "$tools/xenstored" --pid-file /run/xen/xenstored.pid || fail "xenstored does not start"
    "$tools/xen-init-dom0" >/dev/null || fail "dom0 cannot be entered in xenstore"
    "$tools/xenconsoled" --pid-file=/run/xen/xenconsoled.pid || fail "xenconsoled does not start"
    for module in xen-netback xen-blkback; do modprobe "$module"; done
}

case $hypervisor in
    xen) start_xen ;;
    kvm)
        modprobe kvm_amd || modprobe kvm_intel
        [ -c /dev/kvm ] || fail "there is no /dev/kvm"
        # The scheduler's code is changed when the first machine begins and when the last one ends
        # (preempt_notifier_inc and _dec, kernel/sched/core.c), which on emulated CPUs can leave them
        # stuck in it. So a machine without a processor, and without work, lives as long as the lab.
        ln -s "$(command -v qemu-system-x86_64)" /run/tare-first-vm
        /run/tare-first-vm -machine none -accel kvm -nodefaults -no-user-config -display none -S \
            -daemonize || fail "KVM makes no virtual machine"
        ;;
esac
# The SSH server is in the background before it listens, and writes this file afterwards.
until [ -s /run/sshd.pid ]; do sleep 0.02; done
say "ready after $(cut -d' ' -f1 /proc/uptime) s"
