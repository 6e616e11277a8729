"""What the toolbox is made of: Debian packages, what is left out of them, and the programs in it.

There are four toolboxes: ``base`` for almost everything, ``build``, which holds all of ``base``
and what compiles a kernel, ``hadoop``, which holds all of ``base`` and Hadoop, and ``analytics``,
which holds all of ``hadoop`` and what runs on it in addition to its own MapReduce.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["base", "build", "hadoop", "analytics"]
KINDS: tuple[Kind, ...] = ("base", "build", "hadoop", "analytics")
WITH_HADOOP: frozenset[Kind] = frozenset({"hadoop", "analytics"})

FORMAT = 1
"""Raised whenever the same recipe is to give other bytes, so that old toolboxes are not reused."""

VOLUME_UUID = "74617265-2074-4f6f-8c62-6f7800000001"
"""The UUID of every toolbox's file system, by which an agent knows the disk (``tare tOol.box``)."""

ABOUT = "etc/tare/toolbox.json"
"""What the toolbox says of itself: its key, its programs, and what they are expected to write."""

INPUTS = "usr/share/tare/inputs"
"""Where the applications' inputs are."""

KERNEL_SOURCE = "usr/src/linux"
"""Where the kernel's source is, in the toolbox ``build``."""

_BASE = (
    "bonnie++",
    "bzip2",
    "coreutils",
    "dash",
    "dcraw",
    "e2fsprogs",
    "erofs-utils",
    "fio",
    "gnugo",
    "grep",
    "iperf3",
    "nginx-light",
    "openjdk-17-jre-headless | default-jre-headless",
    "openssl",
    "povray",
    "povray-includes",
    "stress-ng",
    "sysbench",
    "tidy",
    "vorbis-tools",
)
_BUILD = (
    "bc",
    "binutils",
    "bison",
    "findutils",
    "flex",
    "gcc",
    "libc6-dev",
    "libelf-dev",
    "linux-source",
    "make",
    "mawk",
    "sed",
    "tar",
    "xz-utils",
)
_HADOOP = (
    "bash",
    "curl",
    "findutils",
    "hostname",
    "libc-bin",
    "mawk",
    "procps",
    "sed",
    "util-linux",
)
PACKAGES: Mapping[Kind, tuple[str, ...]] = {
    "base": _BASE,
    "build": (*_BASE, *_BUILD),
    "hadoop": (*_BASE, *_HADOOP),
    "analytics": (*_BASE, *_HADOOP),
}
"""The packages that are asked for; apt adds what they depend on. ``a | b``: the first there is."""

NOT_NEEDED = re.compile(
    r"(lib)?python3.*|(lib)?perl(-modules.*|5.*)?|lib.*-perl|usrmerge|adduser|passwd|debconf"
    r"|sensible-utils|init-system-helpers|libsemanage.*|util-linux-extra|fonts-.*|media-types"
    r"|readline-common|ca-certificates|dpkg|dmsetup|iproute2|libapparmor1-profiles"
)
"""Packages that others depend on for their installation, or for what nobody uses here."""

LEFT_OUT = (
    "./etc/init.d",
    "./etc/systemd",
    "./lib/systemd",
    "./usr/lib/systemd",
    "./usr/share/bash-completion",
    "./usr/share/bug",
    "./usr/share/doc/*/NEWS*",
    "./usr/share/doc/*/README*",
    "./usr/share/doc/*/TODO*",
    "./usr/share/doc/*/changelog*",
    "./usr/share/doc/*/examples",
    "./usr/share/doc/*/html",
    "./usr/share/doc-base",
    "./usr/share/i18n",
    "./usr/share/info",
    "./usr/share/lintian",
    "./usr/share/locale",
    "./usr/share/man",
    "./var/cache",
    "./var/log",
)
"""What is not unpacked; licences are."""


@dataclass(frozen=True)
class ToolboxProgram:
    """A program of the toolbox: where it is, and the package that brings it."""

    path: str
    package: str


_BASE_PROGRAMS = {
    "bonnie++": ToolboxProgram("/usr/sbin/bonnie++", "bonnie++"),
    "bzip2": ToolboxProgram("/bin/bzip2", "bzip2"),
    "cat": ToolboxProgram("/bin/cat", "coreutils"),
    "dcraw": ToolboxProgram("/usr/bin/dcraw", "dcraw"),
    "fio": ToolboxProgram("/usr/bin/fio", "fio"),
    "gnugo": ToolboxProgram("/usr/games/gnugo", "gnugo"),
    "grep": ToolboxProgram("/bin/grep", "grep"),
    "iperf3": ToolboxProgram("/usr/bin/iperf3", "iperf3"),
    "java": ToolboxProgram("/usr/bin/java", "openjdk-17-jre-headless"),
    "mkfs.erofs": ToolboxProgram("/usr/bin/mkfs.erofs", "erofs-utils"),
    "mkfs.ext4": ToolboxProgram("/sbin/mkfs.ext4", "e2fsprogs"),
    "nginx": ToolboxProgram("/usr/sbin/nginx", "nginx"),
    "oggdec": ToolboxProgram("/usr/bin/oggdec", "vorbis-tools"),
    "oggenc": ToolboxProgram("/usr/bin/oggenc", "vorbis-tools"),
    "openssl": ToolboxProgram("/usr/bin/openssl", "openssl"),
    "povray": ToolboxProgram("/usr/bin/povray", "povray"),
    "sh": ToolboxProgram("/bin/sh", "dash"),
    "stress-ng": ToolboxProgram("/usr/bin/stress-ng", "stress-ng"),
    "sysbench": ToolboxProgram("/usr/bin/sysbench", "sysbench"),
    "tidy": ToolboxProgram("/usr/bin/tidy", "tidy"),
}
_BUILD_PROGRAMS = {
    "bc": ToolboxProgram("/usr/bin/bc", "bc"),
    "bison": ToolboxProgram("/usr/bin/bison", "bison"),
    "flex": ToolboxProgram("/usr/bin/flex", "flex"),
    "gcc": ToolboxProgram("/usr/bin/gcc", "gcc"),
    "ld": ToolboxProgram("/usr/bin/ld", "binutils"),
    "make": ToolboxProgram("/usr/bin/make", "make"),
}
_HADOOP_PROGRAMS = {
    "awk": ToolboxProgram("/usr/bin/mawk", "mawk"),
    "bash": ToolboxProgram("/bin/bash", "bash"),
    "curl": ToolboxProgram("/usr/bin/curl", "curl"),
    "getconf": ToolboxProgram("/usr/bin/getconf", "libc-bin"),
    "setsid": ToolboxProgram("/usr/bin/setsid", "util-linux"),
}
PROGRAMS: Mapping[Kind, Mapping[str, ToolboxProgram]] = {
    "base": _BASE_PROGRAMS,
    "build": {**_BASE_PROGRAMS, **_BUILD_PROGRAMS},
    "hadoop": {**_BASE_PROGRAMS, **_HADOOP_PROGRAMS},
    "analytics": {**_BASE_PROGRAMS, **_HADOOP_PROGRAMS},
}
"""Programs by name; a toolbox that lacks one of them is not published."""

KERNEL_KEPT = (
    "Kbuild", "Kconfig", "Makefile", "arch/Kconfig", "arch/x86", "block", "certs", "crypto",
    "drivers/base", "drivers/char", "drivers/clocksource", "drivers/firmware", "drivers/irqchip",
    "drivers/platform/x86", "drivers/rtc", "drivers/tty", "drivers/video", "fs/*.[ch]", "fs/proc",
    "fs/ramfs", "fs/nls", "fs/notify", "fs/iomap", "fs/kernfs", "fs/sysfs", "fs/devpts", "include",
    "init", "io_uring", "ipc", "kernel", "lib", "mm", "net/*.[ch]", "scripts", "security/*.[ch]",
    "sound/*.[ch]", "tools/arch/x86", "tools/build", "tools/include", "tools/lib", "tools/objtool",
    "tools/scripts", "usr", "virt",
)  # fmt: skip
"""Of the kernel's source what its smallest configuration compiles (``*``: not across ``/``).

Everywhere else only makefiles and configuration files are kept, which the build always reads.
"""


def recipe_digest() -> str:
    """Return the SHA-256 (hex) of everything in Tare that decides what a toolbox holds."""
    digest = hashlib.sha256(f"{FORMAT}\n".encode())
    here = Path(__file__).parent
    for name in ("recipe", "inputs", "raw_picture", "tree"):
        digest.update((here / f"{name}.py").read_bytes())
    return digest.hexdigest()
