"""The files of the lab host's system, taken from packages without installing them."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import tarfile
from collections.abc import Collection, Iterable
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.modules import Module, ModuleTree, modinfo

_UNPACK_S = 300.0
_MERGED = frozenset({"bin", "sbin", "lib", "lib64"})
_MERGED_PLACES = frozenset(f"usr/{name}" for name in _MERGED)
_NOT_KEPT = re.compile(
    r"usr/share/(doc|man|info|locale|lintian|bug|bash-completion|zsh|perl5|i18n|menu|icons"
    r"|applications|pixmaps|X11|fonts|common-licenses|systemtap|polkit-1|vala|gdb|initramfs-tools"
    r"|libdrm|alsa|upstart|debianutils|readline|terminfo|tabset|xml|mime|pam.*)(/|$)"
    r"|usr/share/qemu/(.*\.(dtb|lid|elf|fd|e1000|rom.arm)|edk2.*|skiboot.*|openbios.*|hppa.*|s390.*"
    r"|palcode.*|u-boot.*|opensbi.*|npcm.*|QEMU,.*|slof.*|petalogix.*|canyonlands.*|bamboo.*)"
    r"|usr/lib/python3(/|$)|usr/lib/systemd(/|$)|usr/lib/debug(/|$)|usr/lib/modules(/|$)"
    r"|usr/lib/x86_64-linux-gnu/((gconv|perl.*|dri|vdpau)(/|$)|qemu/(?!accel-))"
    r"|usr/lib/xen-[^/]*/(lib/python.*|share|efi)(/|$)|usr/lib/xen-common/share(/|$)|boot(/|$)"
    r"|etc/(init\.d|default|cron.*|logrotate\.d|rc.*|ufw|insserv.*|network|systemd|grub.*)(/|$)"
)
"""Files that no lab needs: documentation, firmware of other processors, installation scripts."""

_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\ntty:x:5:\nkvm:x:101:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/hostname": "lab\n",
    "etc/hosts": "127.0.0.1 localhost lab\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
}
MODULES = "kernel"
"""The folder of modules below ``/lib/modules/VERSION``, as distributions have it."""
_DIRECTORIES = (
    *("proc", "sys", "dev", "run", "tmp", "root", "mnt", "etc/ssh"),
    *("var/log/xen/console", "var/lib/xen/dump", "var/lib/xenstored", "var/cache", "var/tmp"),
)
_LINKS = {
    "var/run": "/run",
    "var/lock": "/run/lock",
    "etc/mtab": "/proc/self/mounts",
    **{f"usr/sbin/{name}": "../bin/busybox" for name in ("modprobe", "insmod", "rmmod", "lsmod")},
    # On an installed system, the alternatives system makes these links.
    "usr/sbin/iptables": "xtables-legacy-multi",
    "usr/sbin/ovs-vswitchd": "../lib/openvswitch-switch/ovs-vswitchd",
    "usr/bin/awk": "gawk",
    "usr/bin/sh": "dash",
    "usr/sbin/poweroff": "../bin/busybox",
    "usr/sbin/reboot": "../bin/busybox",
}


async def unpack(
    host: Host, packages: Iterable[Path], tree: Path, whole: Collection[str] = ()
) -> None:
    """Unpack packages below ``tree``, without the files that :data:`_NOT_KEPT` matches.

    The current user owns all files, and no script of a package runs, so root is not needed.

    Args:
        host: This computer.
        packages: The package files.
        tree: The folder.
        whole: Names of packages whose files are all kept.

    Raises:
        InputError: A package is damaged, or the disk is full.
    """
    _skeleton(tree)
    for package in packages:
        held = await host.run(["dpkg-deb", "--fsys-tarfile", str(package)], timeout_s=_UNPACK_S)
        if not held.ok:
            raise InputError(
                f"{package.name} could not be unpacked: {held.words()}",
                "remove the cache directory and try again",
            )
        entire = package.name.partition("_")[0] in whole
        await asyncio.to_thread(_extract, held.stdout, tree, entire)
    for path, text in _TEXTS.items():
        (tree / path).write_text(text)
    for path, target in _LINKS.items():
        link = tree / path
        if not os.path.lexists(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def _skeleton(tree: Path) -> None:
    for name in sorted(_MERGED):
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    for name in _DIRECTORIES:
        (tree / name).mkdir(parents=True, exist_ok=True)


def place(name: str, whole: bool = False) -> str | None:
    """Return the path of a package's member relative to the root; None if it is left out.

    Programs and libraries go below ``usr``, as on an installed system, whose ``bin`` and ``lib``
    are links into it.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        return None
    if parts[0] in _MERGED:
        parts.insert(0, "usr")
    path = "/".join(parts)
    return None if _NOT_KEPT.match(path) and not whole else path


def _extract(archive: bytes, tree: Path, whole: bool = False) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            path = place(member.name, whole)
            if path is None or member.isdev():
                continue
            target = tree / path
            if member.issym() and path in _MERGED_PLACES:
                continue  # Debian 13's base-files has links that the skeleton made already.
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if member.issym():
                target.symlink_to(member.linkname)
            elif member.islnk() and (first := place(member.linkname, whole)) is not None:
                os.link(tree / first, target)
            elif member.isfile() and (content := members.extractfile(member)) is not None:
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                target.chmod((member.mode & 0o777) | 0o400)


def add_modules(
    tree: Path, modules: ModuleTree, version: str, names: Iterable[str]
) -> tuple[Module, ...]:
    """Put modules and their dependencies below ``tree``, with the lists that modprobe reads.

    They are where a distribution has them, so that machines can boot the kernel of the lab.

    Returns:
        The modules, each after its dependencies.
    """
    held = modules.sort_by_dependency(names)
    folder = tree / "usr" / "lib" / "modules" / version
    (folder / MODULES).mkdir(parents=True, exist_ok=True)
    for module in held:
        (folder / MODULES / f"{module.name}.ko").write_bytes(module.data)
    (folder / "modules.builtin").write_text(modules.builtin)
    (folder / "modules.dep").write_text(dependencies(held))
    (folder / "modules.alias").write_text(aliases(held))
    return held


def dependencies(modules: Iterable[Module]) -> str:
    """Return the text of ``modules.dep``: each module's file and its dependencies (depmod(8)).

    modprobe loads a line from its end, so each module comes before its own dependencies.
    """
    held = {module.name: module for module in modules}

    def all_needed(name: str) -> list[str]:
        first_loaded: dict[str, None] = {}
        for needed in held[name].depends:
            if needed in held:
                first_loaded |= dict.fromkeys([*reversed(all_needed(needed)), needed])
        return list(reversed(first_loaded))

    def file(name: str) -> str:
        return f"{MODULES}/{name}.ko"

    lines = (" ".join([f"{file(name)}:", *map(file, all_needed(name))]) for name in held)
    return "".join(f"{line}\n" for line in lines)


def aliases(modules: Iterable[Module]) -> str:
    """Return the text of ``modules.alias``, the names by which the kernel requests modules."""
    return "".join(
        f"alias {alias} {module.name}\n"
        for module in modules
        for alias in modinfo(module.data).get("alias", ())
    )
