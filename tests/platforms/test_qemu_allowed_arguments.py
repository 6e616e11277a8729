"""Which of QEMU's arguments a study may give without being allowed to reach the host."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.platforms.qemu.argument_safety import host_arguments
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu

HARMLESS = (
    "-global virtio-blk-pci.packed=on",
    "--global kvm-pit.lost_tick_policy=discard",
    "-overcommit cpu-pm=off",
    "-cpu host,+x2apic,migratable=off",
    "-m 512M",
    "-S",
    "-rtc clock=vm,driftfix=slew",
    "-smbios type=1,manufacturer=a,,b",
    "-machine q35,kernel-irqchip=split,hpet=off",
    "-accel tcg,thread=multi",
    "-object memory-backend-ram,id=a,size=64M,share=on",
    "-object iothread,id=other",
    "-device virtio-net-pci,netdev=net,romfile=",
    "-device virtio-rng-pci -device pcie-root-port,id=p",
    "-serial none -display none",
)
REACHING = (
    *("-incoming exec:id", "--incoming exec:id", "-incoming tcp:0:4444", "-incoming fd:3"),
    "-chardev socket,id=a,path=x,server=on",
    "-chardev pipe,id=a,path=x",
    *("-vnc :1", "-spice port=5900", "-gdb tcp::1234", "-s", "-daemonize"),
    *("-monitor tcp::1,server", "-mon chardev=a", "-qmp unix:x,server", "-qmp-pretty stdio"),
    *("-serial tcp::1", "-serial file:x", "-serial pipe:x", "-serial unix:x", "-serial /dev/x"),
    *("-parallel /dev/parport0", "-debugcon file:x", "-virtioconsole stdio"),
    *("-netdev tap,id=a,script=x", "-netdev user,id=a,smb=x", "-netdev bridge,id=a,helper=x"),
    *("-netdev user,id=a,guestfwd=tcp:1.2.3.4:5-cmd:x", "-net user", "-nic tap"),
    *("-drive file=x", "-blockdev driver=file,filename=x,node-name=a", "-hda x", "-cdrom x"),
    *("-fda x", "-sd x", "-pflash x", "-mtdblock x", "-snapshot"),
    *("-fsdev local,id=a,path=x", "-virtfs local,path=x,mount_tag=a"),
    *("-device vfio-pci,host=01:00.0", "-device vhost-user-fs-pci,chardev=a"),
    *("-device pci-assign,host=1", "-device usb-host,hostbus=1", "-device loader,file=x"),
    *("-device scsi-generic,drive=a", "-device ivshmem-plain,memdev=a", "-device usb-mtp"),
    *("-device virtio-net-pci,romfile=x", "-device virtio-blk-pci,x=/etc/shadow"),
    *("-device id=a,driver=vfio-pci", "-device virtio-rng-pci,driver=vfio-pci"),
    *('-device {"driver":"vfio-pci"}', '-object {"qom-type":"secret"}'),
    *("-object memory-backend-file,id=a,mem-path=x", "-object secret,id=a,file=x"),
    *("-object rng-random,id=a,filename=x", "-object filter-dump,id=a,file=x"),
    *("-object input-linux,id=a,evdev=x", "-object rng-builtin,id=a,filename=x"),
    *("-readconfig x", "-writeconfig x", "-plugin x", "-D x", "-d int", "-trace file=x"),
    *("-pidfile x", "-runas root", "-chroot x", "-sandbox off", "-loadvm x", "-mem-path x"),
    *("-kernel x", "-initrd x", "-append x", "-dtb x", "-bios x", "-option-rom x", "-L x"),
    *("-acpitable file=x", "-smbios file=x", "-boot splash=x", "-fw_cfg name=opt/a,file=x"),
    *("-machine q35,firmware=x", "-M pc,dumpdtb=x", "-accel kvm,device=x", "-icount rr=record"),
    *("-name a,process=b", "-set chardev.qmp.path=x", "-global virtio-net-pci.romfile=x"),
    *("-global driver=virtio-net-pci,property=romfile,value=x", "-k /etc/shadow", "-tpmdev x"),
    *("-add-fd fd=3,set=1", "-xen-attach", "-semihosting", "-audiodev wav,id=a,path=x", "x.img"),
    *("-m", "-global", "-no-such-argument"),
)


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_arguments_need_no_allowance(line: str) -> None:
    assert host_arguments(line.split()) == ()


@pytest.mark.parametrize("line", REACHING)
@pytest.mark.parametrize("around", ["{}", "-overcommit cpu-pm=off {}", "{} -global a.b=c"])
def test_arguments_that_reach_the_host_are_found_among_others(line: str, around: str) -> None:
    if line in ("-m", "-global") and not around.endswith("{}"):
        pytest.skip("there it has an argument, which is refused or harmless")
    (found,) = host_arguments(around.format(line).split())
    assert found.startswith(line)


def test_every_platform_with_raw_arguments_reports_those_that_reach_its_host() -> None:
    bad = ("-vnc", ":1")
    assert [each.value for each in Qemu().host_access(QemuOptions(extra_args=bad))] == ["-vnc :1"]
    assert Qemu().host_access(QemuOptions(extra_args=("-m", "1G"))) == ()
    assert Qemu().host_access(QemuOptions(confined=False))[0].option == "confined"
    found = Libvirt().host_access(LibvirtOptions(extra_args=bad))
    assert [each.option for each in found] == ["extra-args"]
    config = {"raw.lxc": "lxc.hook.pre-start=id", "limits.processes": "100"}
    (access,) = Incus().host_access(IncusOptions(type="container", extra_config=config))
    assert access.value == "raw.lxc: lxc.hook.pre-start=id"


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give QEMU another user")
async def test_a_qemu_that_tries_options_runs_no_program_and_is_not_root(
    agent_program: Path, tmp_path: Path
) -> None:
    """The options are allowed here: what confines QEMU does not depend on that."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    ran, owner = tmp_path / "ran", tmp_path / "trace"
    context = Context(
        host=LocalHost(agent_program),
        ledger=Ledger(tmp_path / "ledger.jsonl"),
        cache=default_cache(),
        agent=agent_program,
    )
    words = ("-incoming", f"exec:id > {ran}", "-pidfile", str(owner), "-D", str(owner))
    seen: list[str] = []

    async def watch() -> None:
        while True:
            seen.extend(_statuses(str(owner)))
            await asyncio.sleep(0.005)

    watching = asyncio.ensure_future(watch())
    await Qemu().check(context, QemuOptions(extra_args=words))
    watching.cancel()
    assert not ran.exists()
    assert seen, "QEMU was never seen"
    # Until `exec` has replaced it, what starts QEMU has its arguments, too.
    uids = {int(text.split("Uid:")[1].split()[0]) for text in seen if "qemu" in _name(text)}
    assert uids and min(uids) >= 1_900_000_000, uids


def _name(status: str) -> str:
    return status.splitlines()[0]


def _statuses(word: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if word in (process / "cmdline").read_bytes().decode(errors="replace"):
                found.append((process / "status").read_text())
        except OSError:
            continue
    return found
