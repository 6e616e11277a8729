"""The lab without booting it: options, packages, files, command lines, what the guest is given."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError, MachineFault
from tare.hosts.local import LocalHost
from tare.images.modules import Module
from tare.lab.command import LabPaths, command, linux_arguments, xen_arguments
from tare.lab.host import check_room, ssh_options, verify
from tare.lab.host_files import initramfs, make_keys
from tare.lab.image import LabImage, make_file_system
from tare.lab.options import GIB, MIB, LabOptions
from tare.lab.packages import PackageFile, needed, parse_uris
from tare.lab.tree import _extract, aliases, dependencies, place
from tare.platforms.qemu.guest_process import is_of
from tare.study.model.lab_nodes import Uneven, cpus_by_node, node_of_each

IMAGE = LabImage(Path("/cache/labs/x"), "x", "6.1", "4.17", {}, ("virtio",), True, 0.0)


def value_after(argv: list[str], flag: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == flag]


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"hypervisor": "hyperv"}, "hyperv"),
        ({"cpus": 0}, "0 CPUs"),
        ({"cpus": 65}, "65 CPUs"),
        ({"memory": 100 * MIB}, "100 MiB"),
        ({"hypervisor": "kvm", "scheduler": "credit"}, "no Xen"),
        ({"hypervisor": "none", "xen_arguments": ("noreboot",)}, "no Xen"),
        ({"hypervisor": "xen", "scheduler": "sedf"}, "sedf"),
        ({"hypervisor": "xen", "dom0_cpus": 3}, "dom0"),
        ({"hypervisor": "xen", "memory": GIB}, "leave nothing"),
        ({"deterministic": True}, "one CPU"),
        ({"nodes": 0}, "0 NUMA nodes"),
        ({"cpus": 3, "nodes": 2}, "3 CPUs of a lab cannot be split evenly over 2 NUMA nodes"),
        ({"packages": ("lvm2", "--purge")}, "must be a package's name"),
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as error:
        LabOptions(**wrong)
    assert error.value.hint or "dom0" in word


def test_kvm_and_xen_boot_the_same_files_in_their_own_ways() -> None:
    places = LabPaths(Path("/tmp/tare-lab-1"))
    kvm = command(LabOptions("kvm"), IMAGE, places, "tare-lab-1")
    xen = command(LabOptions("xen", scheduler="credit"), IMAGE, places, "tare-lab-1")
    assert value_after(kvm, "-kernel") == ["/cache/labs/x/vmlinux"]
    assert value_after(xen, "-kernel") == ["/cache/labs/x/xen"]
    linux, ramdisk = value_after(xen, "-initrd")[0].split(",")
    assert linux.startswith("/cache/labs/x/vmlinux console=hvc0 ")
    assert ramdisk == value_after(kvm, "-initrd")[0] == "/tmp/tare-lab-1/initramfs"
    assert "sched=credit" in value_after(xen, "-append")[0]
    assert value_after(kvm, "-cpu") == ["EPYC"]
    assert "-smap" in value_after(xen, "-cpu")[0]


def test_the_base_disk_is_never_written_to_and_nothing_listens_beyond_loopback() -> None:
    for hypervisor in ("kvm", "xen", "none"):
        argv = command(LabOptions(hypervisor), IMAGE, LabPaths(Path("/tmp/tare-a")), "tare-a")
        base = next(word for word in value_after(argv, "-blockdev") if "node-name=base" in word)
        assert "read-only=on" in base
        (network,) = value_after(argv, "-netdev")
        assert "restrict=on" in network
        assert "hostfwd=tcp:127.0.0.1:0-:22" in network
        assert not {"-vnc", "-spice", "-gdb"} & set(argv)


def test_nodes_have_cpus_and_memory_each_and_one_node_changes_nothing() -> None:
    places = LabPaths(Path("/a"))
    two = command(LabOptions("kvm", cpus=4, memory=GIB + MIB, nodes=2), IMAGE, places, "x")
    assert value_after(two, "-smp") == ["4,sockets=2,cores=2,threads=1"]
    assert value_after(two, "-m") == ["1025M"]
    assert value_after(two, "-object") == [
        "memory-backend-ram,id=node0,size=512M",
        "memory-backend-ram,id=node1,size=513M",
    ]
    assert value_after(two, "-numa") == [
        "node,nodeid=0,cpus=0-1,memdev=node0",
        "node,nodeid=1,cpus=2-3,memdev=node1",
    ]
    one = command(LabOptions("kvm"), IMAGE, places, "x")
    assert value_after(one, "-smp") == ["2,sockets=1,cores=2,threads=1"]
    assert not {"-numa", "-object"} & set(one)


@given(st.integers(1, 64), st.integers(1, 64))
def test_every_cpu_is_on_one_node_and_all_nodes_have_as_many(cpus: int, nodes: int) -> None:
    if cpus % nodes:
        with pytest.raises(Uneven) as error:
            cpus_by_node(cpus, nodes)
        asked = int(error.value.hint.split()[2])
        assert asked % nodes == 0 and asked > cpus
        return
    dealt = cpus_by_node(cpus, nodes)
    assert [cpu for own in dealt for cpu in own] == list(range(cpus))
    assert {len(own) for own in dealt} == {cpus // nodes}
    assert node_of_each(cpus, nodes)[cpus - 1] == nodes - 1


@given(st.text("abc, ", min_size=1, max_size=8))
def test_commas_in_a_folder_do_not_split_an_option(name: str) -> None:
    folder = Path("/tmp") / name
    argv = command(LabOptions("kvm"), IMAGE, LabPaths(folder), "tare-a")
    for word in value_after(argv, "-chardev"):
        assert str(folder).replace(",", ",,") in word


def test_a_labs_firmware_says_which_it_is_and_only_one_that_may_boots_again() -> None:
    one, other = (
        command(LabOptions("none"), IMAGE, LabPaths(Path(folder)), "x")
        for folder in ("/tmp/tare-a", "/tmp/tare-b")
    )
    (first,), (second,) = (value_after(argv, "-uuid") for argv in (one, other))
    assert first != second
    # As Tare looks for the process that carries a machine.
    assert is_of(one, first) and not is_of(other, first)
    assert "-no-reboot" in one
    assert "-no-reboot" not in command(
        LabOptions("none", reboots=True), IMAGE, LabPaths(Path("/tmp/tare-a")), "x"
    )


def test_a_deterministic_lab_takes_no_time_from_the_outside() -> None:
    argv = command(LabOptions("kvm", cpus=1, deterministic=True), IMAGE, LabPaths(Path("/a")), "x")
    assert "-uuid" not in argv
    assert value_after(argv, "-icount")[0].startswith("shift=")
    assert "clock=vm" in value_after(argv, "-rtc")[0]
    assert value_after(argv, "-accel") == ["tcg,thread=single"]
    assert "-icount" not in command(LabOptions("kvm"), IMAGE, LabPaths(Path("/a")), "x")
    # What runs in it is never given up: hours in which it waits for Tare pass at once.
    counted = ssh_options(LabPaths(Path("/a")), 1, deterministic=True)
    assert counted.lease_s > 10**8
    # Whatever it is asked while something is measured in it takes time from that.
    assert counted.silence_s >= 20 * ssh_options(LabPaths(Path("/a")), 1).silence_s


def test_arguments_of_ones_own_come_last_so_that_they_win() -> None:
    options = LabOptions("xen", xen_arguments=("sched=null",), kernel_arguments=("debug",))
    assert xen_arguments(options)[-1] == "sched=null"
    assert linux_arguments(options)[-1] == "debug"


LISTED = """\
'http://mirror.example/pool/b/bash_5.2-2_amd64.deb' bash_5.2-2_amd64.deb 1471848 SHA256:aa
'http://mirror.example/pool/o/ssh_1%253a9.deb' openssh-server_1%3a9.2p1-2_amd64.deb 456584
NOTE: something else that apt says
"""


def test_apts_list_gives_names_versions_and_digests_where_it_has_them() -> None:
    bash, ssh = parse_uris(LISTED)
    assert (bash.name, bash.version, bash.digest) == ("bash", "5.2-2", "SHA256:aa")
    assert (ssh.name, ssh.version, ssh.digest) == ("openssh-server", "1:9.2p1-2", "")


def test_packages_that_a_lab_does_not_need_are_not_fetched() -> None:
    names = ("libpython3.11-minimal", "udev", "libc6", "xen-utils-4.17", "perl-base", "libxenmisc4")
    files = [PackageFile(f"{name}_1_amd64.deb", "") for name in names]
    assert [part.name for part in needed(files)] == ["libc6", "xen-utils-4.17", "libxenmisc4"]
    # What is asked for by its name is wanted, whatever it is.
    assert "udev" in {part.name for part in needed(files, ("udev",))}


TCG = "usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so"
"""Without it Debian's QEMU answers no question."""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./bin/ip", "usr/bin/ip"),
        ("./lib64/ld.so", "usr/lib64/ld.so"),
        ("./etc/xen/xl.conf", "etc/xen/xl.conf"),
        ("./usr/lib/xen-4.17/bin/xl", "usr/lib/xen-4.17/bin/xl"),
        ("./usr/share/doc/bash/README", None),
        ("./lib/systemd/system/x", None),
        ("./usr/lib/x86_64-linux-gnu/qemu/hw-usb-host.so", None),
        (f"./{TCG}", TCG),
        ("./../../etc/passwd", None),
        ("./", None),
    ],
)
def test_each_member_of_a_package_goes_to_its_place(name: str, path: str | None) -> None:
    assert place(name) == path
    # All members of a requested package are kept, except those with a path outside the tree.
    assert (place(name, whole=True) is None) == (".." in name or name == "./")


def test_a_package_is_unpacked_without_owners_devices_or_setuid(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, kind, mode in (
            ("./bin/su", tarfile.REGTYPE, 0o4755),
            ("./dev/sda", tarfile.BLKTYPE, 0o600),
            ("./bin/su2", tarfile.LNKTYPE, 0o755),
            ("./etc/alias", tarfile.SYMTYPE, 0o777),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid = kind, mode, 4242
            member.linkname = "./bin/su" if kind == tarfile.LNKTYPE else "/bin/su"
            archive.addfile(member, io.BytesIO())
    _extract(data.getvalue(), tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {"usr", "usr/bin", "usr/bin/su", "usr/bin/su2", "etc", "etc/alias"}
    assert (tmp_path / "usr/bin/su").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "etc/alias").readlink() == Path("/bin/su")


def test_modprobe_finds_all_that_a_module_needs() -> None:
    parts = [("kvm_amd", ("kvm", "ccp")), ("kvm", ("irqbypass",)), ("ccp", ()), ("irqbypass", ())]
    modules = [Module(name, Path(name), needs, b"") for name, needs in parts]
    assert dependencies(modules).splitlines()[0] == (
        "kernel/kvm_amd.ko: kernel/ccp.ko kernel/kvm.ko kernel/irqbypass.ko"
    )
    parts = [("bridge", ("llc", "stp")), ("stp", ("llc",)), ("llc", ())]
    modules = [Module(name, Path(name), needs, b"") for name, needs in parts]
    # Loaded from its end: stp needs llc, though bridge names llc first.
    assert dependencies(modules).splitlines()[0] == "kernel/bridge.ko: kernel/stp.ko kernel/llc.ko"
    assert aliases([]) == ""


async def test_a_file_system_is_made_without_root_and_takes_no_room(tmp_path: Path) -> None:
    await make_file_system(LocalHost(), tmp_path / "room", size=GIB)
    status = (tmp_path / "room").stat()
    assert status.st_size == GIB
    assert status.st_blocks * 512 < 64 * MIB
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(b"x" * 300_000)
    await make_file_system(LocalHost(), tmp_path / "disk", tree=tree)
    shown = await LocalHost().run(
        ["/sbin/debugfs", "-R", "stat /file", str(tmp_path / "disk")], timeout_s=30
    )
    assert b"Size: 300000" in shown.stdout


async def test_a_full_disk_is_reported_without_a_traceback(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with pytest.raises(InputError, match="cannot be made"):
        await make_file_system(LocalHost(), Path("/dev/full/disk"), tree=tree)


def test_each_lab_has_keys_of_its_own_and_only_its_owner_reads_them(
    tmp_path: Path, agent_program: Path
) -> None:
    image = LabImage(tmp_path, "x", "6.1", "4.17", {}, ("virtio",), True, 0.0)
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "virtio.ko").write_bytes(b"module")
    (tmp_path / "busybox").write_bytes(b"busybox")
    first, second = make_keys(), make_keys()
    assert first.known_hosts(22) != second.known_hosts(22)
    assert first.known_hosts(40000).startswith("[127.0.0.1]:40000 ssh-ed25519 ")
    archive = initramfs(image, LabOptions("xen"), first, agent_program)
    # One private key, the host's own: a reader of the archive cannot log in with it.
    assert archive.count(b"BEGIN OPENSSH PRIVATE KEY") == 1
    assert first.client.export_public_key("openssh").strip() in archive
    assert b"hypervisor=xen\n" in archive


async def test_a_host_that_booted_another_hypervisor_is_reported() -> None:
    # This computer has no Xen, whatever else it has.
    with pytest.raises(MachineFault, match="not with Xen"):
        await verify(LocalHost(), "xen")


async def test_more_memory_than_there_is_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="available") as error:
        await check_room(LocalHost(), LabOptions("kvm", memory=1 << 50), tmp_path)
    assert "--memory" in error.value.hint


async def test_a_computer_without_qemu_or_apt_gets_a_list_of_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="qemu-system-x86_64") as error:
        await check_room(LocalHost(), LabOptions("kvm"), tmp_path)
    assert "apt-get install" in error.value.hint
