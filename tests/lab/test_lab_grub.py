"""A computer with GRUB that is rebooted from one hypervisor into another, as real hosts are."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.lab_inside import PATIENCE_S
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.ssh.host import SshHost
from tare.images.cache import default_cache
from tare.images.kernels import find_kernel
from tare.lab.command import LabPaths, command, linux_arguments, xen_arguments
from tare.lab.host import ssh_options
from tare.lab.host_files import Keys, initramfs, make_keys
from tare.lab.image import SBIN, LabImage, build_lab_image, make_file_system
from tare.lab.options import GIB, MIB, LabOptions
from tare.lab.outer import Outer
from tare.platforms.contract import Context
from tare.platforms.host_hypervisor import hypervisors_of
from tare.registry import installed
from tare.run.hosts.booted import running
from tare.run.hosts.ssh import SshRunHost
from tare.study.reading.hosting import Boot

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(900),
]

PACKAGES = ("grub-pc-bin", "grub-common", "grub2-common", "libdevmapper1.02.1")
MODULES = (
    *("biosdisk", "ext2", "search", "search_fs_file", "linux", "multiboot2", "normal"),
    *("configfile", "loadenv", "serial", "terminal", "echo", "test", "boot"),
)
FIRST = "search --no-floppy --file /grub/grubenv --set=root\nset prefix=($root)/grub\n"
XEN = LabOptions("xen", memory=2 * GIB, dom0_memory=768 * MIB)
PLAIN = LabOptions("kvm", memory=2 * GIB)

# As grub-mkconfig writes it: the entry chosen for once, and no other time.
MENU = """\
serial --unit=0 --speed=115200
terminal_output serial
load_env
set default=0
if [ "${{next_entry}}" ]; then
  set default="${{next_entry}}"
  set next_entry=
  save_env next_entry
fi
set timeout=0
menuentry "Plain Linux" {{ linux /vmlinuz {linux}
  initrd /initramfs-kvm }}
submenu "Advanced options" {{
  menuentry "With Xen" {{ multiboot2 /xen placeholder {xen}
    module2 /vmlinuz placeholder {dom0}
    module2 /initramfs-xen }}
  menuentry "With sched=credit" {{ multiboot2 /xen placeholder {xen} sched=credit
    module2 /vmlinuz placeholder {dom0}
    module2 /initramfs-xen }}
}}
"""


@pytest.fixture(scope="module")
def grub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GRUB's files, as its packages hold them."""
    folder = tmp_path_factory.mktemp("grub")
    got = subprocess.run(
        ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *PACKAGES],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    if got.returncode:
        pytest.skip(f"apt cannot fetch GRUB: {got.stderr.decode()}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    return folder


def core(grub: Path, folder: Path) -> Path:
    """Return GRUB as a file that QEMU loads like a kernel."""
    (folder / "first.cfg").write_text(FIRST)
    modules = grub / "usr/lib/grub/i386-pc"
    made = ["-O", "i386-pc", "-d", str(modules), "-p", "/grub", "-c", str(folder / "first.cfg")]
    subprocess.run(
        [grub / "usr/bin/grub-mkimage", *made, "-o", str(folder / "core"), *MODULES],
        env={"LD_LIBRARY_PATH": str(grub / "lib/x86_64-linux-gnu")},
        check=True,
    )
    whole = folder / "grub"
    whole.write_bytes((modules / "lnxboot.img").read_bytes() + (folder / "core").read_bytes())
    return whole


async def boot_disk(context: Context, image: LabImage, keys: Keys, folder: Path) -> Path:
    """Make the disk that GRUB reads, which the host mounts at /boot."""
    tree = folder / "boot"
    (tree / "grub").mkdir(parents=True)
    kernel = await find_kernel(context.host, "generic", context.cache)
    (tree / "vmlinuz").write_bytes(kernel.file.read_bytes())
    (tree / "xen").write_bytes(image.xen.read_bytes())
    for options in (PLAIN, XEN):
        archive = initramfs(image, options, keys, context.agent)
        (tree / f"initramfs-{options.hypervisor}").write_bytes(archive)
    words = {
        "linux": " ".join(linux_arguments(PLAIN)),
        "dom0": " ".join(linux_arguments(XEN)),
        "xen": " ".join(xen_arguments(XEN)),
    }
    (tree / "grub" / "grub.cfg").write_text(MENU.format(**words))
    (tree / "grub" / "grubenv").write_text("# GRUB Environment Block\n".ljust(1024, "#"))
    disk = folder / "boot.disk"
    made = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", str(tree), str(disk), "128M"]
    done = await context.host.run(made, timeout_s=60, env=SBIN)
    assert done.ok, done.words()
    return disk


async def furnish(host: SshHost, grub: Path) -> None:
    """Install GRUB's own commands on the host, as its packages would."""
    files = {
        "/usr/sbin/grub-reboot.grub": grub / "usr/sbin/grub-reboot",
        "/usr/bin/grub-editenv": grub / "usr/bin/grub-editenv",
        "/usr/sbin/grub-probe": grub / "usr/sbin/grub-probe",
        "/usr/share/grub/grub-mkconfig_lib": grub / "usr/share/grub/grub-mkconfig_lib",
        "/lib/x86_64-linux-gnu/libdevmapper.so.1.02.1": next(
            grub.glob("**/libdevmapper.so.1.02.1")
        ),
    }
    await host.run(["mkdir", "-p", "/usr/share/grub", "/boot"], timeout_s=60)
    for path, file in files.items():
        await host.write(path, file.read_bytes())
    # The lab has no fstab: its boot disk is mounted when it is wanted.
    script = b'#!/bin/sh\nmountpoint -q /boot || mount /dev/vdc /boot\nexec grub-reboot.grub "$@"\n'
    await host.write("/usr/sbin/grub-reboot", script)
    done = await host.run(["chmod", "+x", *list(files)[:3], "/usr/sbin/grub-reboot"], timeout_s=60)
    assert done.ok, done.words()


@asynccontextmanager
async def computer(context: Context, grub: Path, folder: Path) -> AsyncIterator[SshHost]:
    """Boot a lab's computer by GRUB instead of by QEMU; it may reboot."""
    image = await build_lab_image(context.host, "generic", context.cache)
    places = LabPaths(folder)
    folder.mkdir(mode=0o700)
    keys = make_keys()
    places.key.write_bytes(keys.client.export_private_key("openssh"))
    places.key.chmod(0o600)
    await make_file_system(context.host, places.room, size=4 * GIB)
    disk = await boot_disk(context, image, keys, folder)
    argv = command(XEN, image, places, folder.name)
    argv[argv.index("-kernel") + 1] = str(core(grub, folder))
    for flag in ("-initrd", "-append"):
        del argv[argv.index(flag) : argv.index(flag) + 2]
    argv.remove("-no-reboot")
    argv += ["-blockdev", f"driver=file,node-name=boot,filename={disk}"]
    argv += ["-device", "virtio-blk-pci,drive=boot"]
    outer = await Outer.start(context.host, context.ledger, argv, places, "the computer")
    async with AsyncExitStack() as held:
        held.push_async_callback(outer.stop)
        port = await outer.ssh_port()
        places.known_hosts.write_text(keys.known_hosts(port))
        await outer.go(())
        await outer.ready(PATIENCE_S)
        reached = replace(ssh_options(places, port), silence_s=10.0, patience_s=15.0)
        yield await held.enter_async_context(SshHost(reached, context.agent))


async def test_a_host_is_rebooted_by_grub_into_what_an_arm_needs(
    grub: Path, agent_program: Path, tmp_path: Path
) -> None:
    here = LocalHost(agent_program)
    ledger = Ledger(tmp_path / "ledger")
    context = Context(here, ledger, default_cache(), agent_program)
    menu = Boot.model_validate(
        {
            "none": {"entry": "Plain Linux"},
            # Somebody named the wrong entry.
            "xen": {"entry": "0"},
            "xen_credit": {"entry": "Advanced options>With sched=credit"},
            "patience": PATIENCE_S,
        }
    )
    notices: list[str] = []
    async with computer(context, grub, tmp_path / "tare-grub") as host:
        await furnish(host, grub)
        platforms = installed().platforms
        known = hypervisors_of(platforms.values())
        now = await running(host, known)
        assert now.below is None
        afar = replace(context, host=host, here=here)
        run_host = SshRunHost(host, afar, platforms, {}, menu, now, notices.append)
        first = host.boot_id()
        await run_host.under("none", 1)
        assert host.boot_id() == first, "what runs already needs no reboot"
        await run_host.under("xen:credit", 1)
        assert host.boot_id() != first
        assert await running(host, known) == run_host._now
        assert run_host._now.details.scheduler == "credit"
        assert run_host.cpus.online == (0, 1)
        await run_host.under("none", 2)
        assert (await running(host, known)).below is None
        with pytest.raises(
            MachineFault, match="rebooted for xen and came back with a kernel with no"
        ):
            await run_host.under("xen", 2)
    assert any("rebooting" in sentence for sentence in notices)
    assert not ledger.open_entries()
