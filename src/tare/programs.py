"""External programs that Tare runs on a host, their locations, and the packages that contain them.

Set-up reads this table before anything is installed, so it needs the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Folders of administrators' programs, searched even if the user's PATH lacks them."""

INSTALLERS: Mapping[str, str] = {
    # Without --no-remove, apt removes conflicting packages, such as Docker's own runc.
    "apt": "apt-get install --no-remove",
    "dnf": "dnf install",
    "zypper": "zypper install",
    "pacman": "pacman -S --needed",
    "apk": "apk add",
}
"""The command of each package manager that installs packages."""

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "apt": ("debian", "ubuntu"),
    "dnf": ("fedora", "rhel", "centos"),
    "zypper": ("suse", "opensuse", "sles"),
    "pacman": ("arch",),
    "apk": ("alpine",),
}


@dataclass(frozen=True)
class Program:
    """One program, or several that do the same.

    Args:
        names: The program's names, the preferred first. They are searched in PATH and the system
            folders.
        purpose: The purpose for which Tare uses it.
        packages: The package that contains it, by package manager.
        files: Patterns of files outside PATH that are also this program.
    """

    names: tuple[str, ...]
    purpose: str
    packages: Mapping[str, str]
    files: tuple[str, ...] = ()


def _everywhere(package: str, **others: str) -> dict[str, str]:
    return {**dict.fromkeys(INSTALLERS, package), **others}


QEMU = Program(
    # Proxmox VE and RHEL have QEMU under names of their own.
    ("qemu-system-x86_64", "qemu-kvm", "kvm"),
    "virtual machines (platform qemu) and the lab",
    {
        "apt": "qemu-system-x86",
        "dnf": "qemu-kvm",
        "zypper": "qemu-x86",
        "pacman": "qemu-system-x86",
        "apk": "qemu-system-x86_64",
    },
    ("/usr/libexec/qemu-kvm", "/usr/lib/qemu-kvm/qemu-kvm"),
)
CRUN = Program(
    ("crun",),
    "containers (platform oci)",
    _everywhere("crun"),
    ("/usr/libexec/crio/crun", "/usr/libexec/podman/crun", "/usr/lib/podman/crun"),
)
RUNC = Program(
    ("runc", "docker-runc"),
    "containers (platform oci)",
    _everywhere("runc"),
    (
        "/usr/libexec/crio/runc",
        "/usr/lib/cri-o-runc/sbin/runc",
        "/usr/libexec/docker/docker-runc*",
        "/usr/lib/docker.io/docker-runc",
        "/usr/libexec/podman/runc",
        "/snap/docker/current/bin/runc",
        "/snap/microk8s/current/bin/runc",
        "/var/lib/rancher/*/data/current/bin/runc",
        "/var/lib/rancher/rke2/data/*/bin/runc",
    ),
)
RUNSC = Program(
    ("runsc",),
    "containers by gVisor (platform oci, runtime: runsc)",
    {"apt": "runsc"},
)
CTR = Program(
    ("ctr",),
    "containers in virtual machines (platform oci, runtime: kata)",
    _everywhere("containerd", apk="containerd-ctr"),
)
KATA = Program(
    ("containerd-shim-kata-v2",),
    "containers in virtual machines (platform oci, runtime: kata)",
    {},
    ("/opt/kata/bin/containerd-shim-kata-v2",),
)
MKFS = Program(("mkfs.ext4",), "disks of machines", _everywhere("e2fsprogs"))
IP = Program(("ip",), "networks of machines", _everywhere("iproute2", dnf="iproute"))
TASKSET = Program(("taskset",), "keeping QEMU to its CPUs", _everywhere("util-linux"))
SETPRIV = Program(
    ("setpriv",), "running QEMU as a separate user", _everywhere("util-linux", apk="setpriv")
)
QEMU_IMG = Program(
    ("qemu-img",),
    "disks in QEMU's formats",
    {
        "apt": "qemu-utils",
        "dnf": "qemu-img",
        "zypper": "qemu-tools",
        "pacman": "qemu-img",
        "apk": "qemu-img",
    },
)
LVM = Program(("lvcreate",), "disks on LVM volumes", _everywhere("lvm2"))

OCI = Program(
    (*CRUN.names, *RUNC.names),
    "containers (platform oci; crun or runc)",
    {**RUNC.packages, **dict.fromkeys(("dnf", "pacman", "apk"), "crun")},
    (*CRUN.files, *RUNC.files),
)
"""The runtime for arms that do not name one."""

USUAL = (QEMU, OCI, MKFS, IP, TASKSET, SETPRIV)
"""The programs that Tare's own studies use."""

RUNTIMES: Mapping[str, Program] = {"crun": CRUN, "runc": RUNC, "runsc": RUNSC}
"""The OCI runtimes by the name that a study uses."""


def manager_of(os_release: str) -> str:
    """Return a distribution's package manager, or an empty text if it is not known.

    Args:
        os_release: The text of ``/etc/os-release``, os-release(5).
    """
    fields: dict[str, str] = {}
    for line in os_release.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            fields[name.strip()] = value.strip().strip("\"'").lower()
    for each in (fields.get("ID", ""), *fields.get("ID_LIKE", "").split()):
        for manager, families in _FAMILIES.items():
            if each in families or any(each.startswith(f"{family}-") for family in families):
                return manager
    return ""


def install_command(os_release: str, programs: Iterable[Program]) -> str:
    """Return the command that installs programs on a distribution, or advice if that is unknown.

    Args:
        os_release: The text of ``/etc/os-release``.
        programs: The missing programs.
    """
    programs = tuple(programs)
    manager = manager_of(os_release)
    packages = [p.packages[manager] for p in programs if manager in p.packages]
    if manager and packages:
        return f"{INSTALLERS[manager]} {' '.join(dict.fromkeys(packages))}"
    names = ", ".join(program.names[0] for program in programs)
    debian = " ".join(dict.fromkeys(p.packages["apt"] for p in programs if "apt" in p.packages))
    return f"install {names} with this distribution's package manager (on Debian: {debian})"


def search_command(program: Program, names: Iterable[str] | None = None) -> list[str]:
    """Return a command that prints a program's path on a host, and fails if there is none.

    Args:
        program: The program to search for.
        names: Names to search for instead of all of the program's.
    """
    words = (*(program.names if names is None else names), *program.files)
    return ["sh", "-c", _SEARCH, "sh", ":".join(SYSTEM_FOLDERS), *words]


# A pattern of files is left unquoted, so that the shell expands it.
_SEARCH = """PATH="$PATH:$1"
shift
for word; do
    case $word in
        */*) for file in $word; do [ -f "$file" ] && [ -x "$file" ] && echo "$file" && exit; done ;;
        *) command -v -- "$word" && exit ;;
    esac
done
exit 1"""
