#!/bin/sh
# The first program of an outer machine: loads KVM, then becomes the QEMU of the inner machine.
# Its arguments: vCPUs and memory of the inner machine, then the command line of its kernel.
export PATH=/bin
say() { echo "tare-nested: $*" >/dev/console; }
# The end of the first program is a panic, which ends the outer machine.
fail() { say "failed: $*"; sleep 1; exit 1; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    # Only one of kvm_amd and kvm_intel fits the processor.
    insmod "$module" 2>/dev/null || case $module in
        *kvm_*) ;;
        *) say "the module $module does not load" ;;
    esac
done </etc/tare/modules
[ -c /dev/kvm ] || fail "the processor of the outer machine offers no virtualization"

agent=
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    for port in /sys/class/virtio-ports/*; do
        [ -r "$port/name" ] && read -r name <"$port/name" && [ "$name" = tare.agent ] &&
            agent=/dev/${port##*/}
    done
    [ -c "$agent" ] && break
    sleep 0.1
done
[ -c "$agent" ] || fail "there is no port for the agent"

vcpus=$1
memory=$2
shift 2
exec qemu -name inner -nodefaults -no-user-config -no-reboot -display none -L /firmware \
    -machine q35,smm=off,vmport=off,usb=off -accel kvm -cpu host,migratable=off \
    -smp "$vcpus,sockets=1,cores=$vcpus,threads=1" -m "$memory" \
    -kernel /inner/kernel -initrd /inner/initramfs -append "$*" \
    -chardev file,id=console,path=/dev/ttyS0 -device isa-serial,chardev=console,index=0 \
    -chardev "pipe,id=agent,path=$agent" -device virtio-serial-pci,max_ports=2 \
    -device virtserialport,chardev=agent,name=tare.agent
