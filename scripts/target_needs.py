"""The programs and packages that the targets of make use, and how to check for each."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.apt_install import Apt, Choice
from tare import programs
from tare.programs import Program

ROOT = Path(__file__).resolve().parents[1]
RUSTUP = "https://rustup.rs"

Choices = Callable[[Apt], Sequence[Choice]]


@dataclass(frozen=True)
class Need:
    """One thing that a make target uses.

    Args:
        name: Its name, mostly that of a program.
        purpose: Its purpose.
        without: The consequence if it is missing.
        is_there: Returns whether this computer has it.
        choices: Returns the packages that apt may install for it, the preferred ones first.
        program: Its packages for other package managers, if they are known.
        required: Whether the target cannot continue without it.
        hint: Another way to get it.
    """

    name: str
    purpose: str
    without: str
    is_there: Callable[[], bool]
    choices: Choices
    program: Program | None = None
    required: bool = False
    hint: str = ""


# Checks whether a program or library is there.


def program_is_there(program: Program) -> bool:
    """Return whether this computer has a program."""
    command = programs.search_command(program)
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _named(*names: str, files: tuple[str, ...] = ()) -> Callable[[], bool]:
    return lambda: program_is_there(Program(names, "", {}, files))


def _file(*patterns: str) -> Callable[[], bool]:
    return lambda: any(any(Path("/").glob(pattern[1:])) for pattern in patterns)


def _compiles(text: str, *options: str) -> bool:
    """Return whether the C compiler makes a program of a text."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-x", "c", "-", "-o", f"{folder}/program", *options]
        try:
            return (
                subprocess.run(
                    command, input=text.encode(), capture_output=True, check=False
                ).returncode
                == 0
            )
        except OSError:
            return False


def _links_static() -> bool:
    # The agent is one file without libraries.
    return _compiles("int main(void) { return 0; }\n", "-static")


def _has_header(header: str, *options: str) -> Callable[[], bool]:
    return lambda: _compiles(f"#include <{header}>\n", "-fsyntax-only", *options)


def _has_python_headers() -> bool:
    import sysconfig

    return (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file()


def _has_static_busybox() -> bool:
    found = shutil.which("busybox")
    return found is not None and b"/ld-linux" not in Path(found).read_bytes()[:4096]


def _makes_environments() -> bool:
    if shutil.which("virtualenv") or shutil.which("uv"):
        return True
    import importlib.util

    return all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))


# Packages to install.


def _packages(*names: str, units: tuple[str, ...] = ()) -> Choices:
    """Return a choice of one set of packages."""
    return lambda _apt: [Choice(names, units)]


def _any_of(*names: str) -> Choices:
    """Return a choice among packages, the preferred first."""
    return lambda _apt: [Choice((name,)) for name in names]


def _rust(apt: Apt) -> list[Choice]:
    """Return the distribution's Rusts that are new enough.

    Debian 12 has a second, newer Rust to build browsers with. Ubuntu has newer ones whose names
    include their version.
    """
    least = _version(rust_least())
    numbered = sorted(apt.names(r"^cargo-[0-9.]+$"), key=lambda name: _version(name[6:]))
    names = ("cargo", "cargo-web", *numbered)
    pairs = [(cargo, cargo.replace("cargo", "rustc")) for cargo in names]
    offered = apt.candidates(name for pair in pairs for name in pair)
    return [
        Choice((cargo, rustc, "ca-certificates"))
        for cargo, rustc in pairs
        if cargo in offered and _version(offered.get(rustc, "")) >= least
    ]


def rust_least() -> str:
    """Return the oldest Rust that builds the agent."""
    text = (ROOT / "agent/Cargo.toml").read_text()
    found = re.search(r'^rust-version = "(.*)"$', text, re.MULTILINE)
    return found[1] if found else "0"


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"[\d.]*\d", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


_INCUS_UNITS = ("incus.service", "incus.socket", "incus-user.service", "incus-user.socket")
_LXD_UNITS = ("lxd.service", "lxd.socket", "lxd-containers.service", "lxc.service")


def _instance_servers(apt: Apt) -> list[Choice]:
    """Return Incus, and LXD if the distribution has it as a package rather than as a snap.

    Bridges of both need dnsmasq, and VMs of Incus need a module of QEMU.
    """
    found = []
    offered = apt.candidates(("incus", "lxd"))
    if "incus" in offered:
        parts = ("incus", "dnsmasq-base", "qemu-system-modules-spice")
        found.append(Choice(parts, (*_INCUS_UNITS, "incus-startup.service", "lxcfs.service")))
    if offered.get("lxd", "").startswith("5."):
        units = (*_LXD_UNITS, "lxc-net.service", "lxcfs.service")
        found.append(Choice(("lxd", "dnsmasq-base"), units))
    return found


def _of(program: Program, without: str, *, choices: Choices | None = None) -> Need:
    """Return the need for a program that is in Tare's own table."""
    return Need(
        name=program.names[0],
        purpose=program.purpose,
        without=without,
        is_there=lambda: program_is_there(program),
        choices=choices or _packages(program.packages["apt"]),
        program=program,
    )


def _test(
    name: str, package: str, without: str, is_there: Callable[[], bool] | None = None
) -> Need:
    return Need(name, "tests", without, is_there or _named(name), _packages(package))


def _venv_packages() -> Choices:
    own = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    return _any_of(own, "python3-venv")


_CC = Program(
    ("cc",),
    "",
    {
        "apt": "gcc libc6-dev",
        "dnf": "gcc glibc-static",
        "zypper": "gcc glibc-devel-static",
        "pacman": "gcc",
        "apk": "gcc musl-dev",
    },
)
_RUST = Program(
    ("cargo",),
    "",
    {
        "apt": "cargo rustc",
        "dnf": "cargo rust",
        "zypper": "cargo rust",
        "pacman": "rust",
        "apk": "cargo rust",
    },
)
_VENV = Program(("venv",), "", {"apt": "python3-venv", "zypper": "python3-virtualenv"})


def quick_needs() -> list[Need]:
    """Return the needs of set-up and of the quick study."""
    return [
        Need(
            "venv",
            "Tare's Python environment, .venv",
            "Tare cannot be installed into .venv",
            _makes_environments,
            _venv_packages(),
            _VENV,
            required=True,
        ),
        Need(
            "C compiler",
            "linking the agent, which runs in every machine, into one static file",
            "the agent cannot be built",
            _links_static,
            _packages_of_compiler,
            _CC,
            required=True,
        ),
        Need(
            "Rust",
            f"building the agent (Rust {rust_least()} or newer)",
            "the agent cannot be built",
            lambda: False,
            _rust,
            _RUST,
            required=True,
            hint=f"Rust {rust_least()} or newer comes from {RUSTUP}, too",
        ),
        _of(programs.QEMU, "no virtual machines of QEMU: arms of platform qemu are left out"),
        Need(
            "crun or runc",
            programs.OCI.purpose,
            "no containers: arms of platform oci are left out",
            lambda: program_is_there(programs.OCI),
            _any_of("runc", "crun"),
            programs.OCI,
        ),
        _of(programs.MKFS, "no study with disks"),
        _of(programs.IP, "no study with networks"),
        _of(programs.TASKSET, "no virtual machines of QEMU"),
        _of(programs.SETPRIV, "QEMU runs with Tare's own rights"),
    ]


def _packages_of_compiler(_apt: Apt) -> list[Choice]:
    if shutil.which("cc"):
        return [Choice(("libc6-dev",)), Choice(("gcc", "libc6-dev"))]
    return [Choice(("gcc", "libc6-dev"))]


def test_needs() -> list[Need]:
    """Return the additional needs of the tests."""
    return [
        _test("bwrap", "bubblewrap", "no tests of the example platform"),
        _test("busybox", "busybox-static", "no tests of small toolboxes", _has_static_busybox),
        _test("chromium", "chromium", "no tests of reports in a browser",
              _named("chromium", "chromium-browser")),
        _test("curl", "curl", "no tests of HTTP by curl"),
        _test("genisoimage", "genisoimage", "no tests of media for vendors' hosts"),
        Need("libvirtd", "tests", "no tests of libvirt's server", _named("libvirtd"),
             _packages("libvirt-daemon-system", units=(
                 "libvirtd.service", "libvirtd.socket", "libvirtd-ro.socket",
                 "libvirtd-admin.socket", "virtlogd.socket", "virtlockd.socket",
                 "libvirt-guests.service"))),
        _test("libvirt's headers", "libvirt-dev", "no tests of platform libvirt",
              _has_header("libvirt/libvirt.h")),
        _test("libxml2's headers", "libxml2-dev", "no tests of platform ovirt",
              _has_header("libxml/parser.h", "-I/usr/include/libxml2")),
        _test("mvn", "maven", "no tests of Hadoop and SciMark"),
        _test("mcopy", "mtools", "no tests of live images"),
        *(
            _test(shell, shell, f"no tests with the login shell {shell}")
            for shell in ("fish", "tcsh", "zsh")
        ),
        _test("ssh", "openssh-client", "no tests of the command ssh"),
        Need("sshd", "tests", "no tests over SSH", _named("sshd"),
             _packages("openssh-server", units=("ssh.service", "ssh.socket"))),
        _test("OVMF", "ovmf", "no tests of UEFI",
              _file("/usr/share/OVMF/OVMF_CODE*.fd", "/usr/share/edk2/ovmf/OVMF_CODE*")),
        _test("pkg-config", "pkg-config", "no tests of platform libvirt"),
        _test("Python's headers", "python3-dev", "no tests of platforms libvirt and ovirt",
              _has_python_headers),
        _of(programs.QEMU_IMG, "no tests of QEMU's disk formats"),
        _of(programs.RUNSC, "no tests of gVisor"),
        _test("sudo", "sudo", "no tests of sudo"),
        _test("xorriso", "xorriso", "no tests of live images"),
        Need("Incus or LXD", "tests", "no tests of platform incus",
             _named("incusd", "lxd", files=("/usr/libexec/incus/incusd",)), _instance_servers),
        Need("Go", "building vSphere's simulator", "no tests against vSphere's simulator",
             _named("go", files=("/usr/local/go/bin/go",)), _packages("golang-go")),
    ]  # fmt: skip


def bench_needs() -> list[Need]:
    """Return the additional needs of the benchmarks."""
    nginx = _packages("nginx-light", units=("nginx.service",))
    return [
        Need("busybox", "benchmarks", "no benchmark of boot times", _has_static_busybox,
             _packages("busybox-static")),
        *(
            Need(name, "benchmarks", f"no comparison with {name}", _named(name), _any_of(*packages))
            for name, *packages in (
                ("cyclictest", "rt-tests"),
                ("modprobe", "kmod"),
                ("file", "file"),
                ("mvn", "maven"),
                ("stress-ng", "stress-ng"),
                ("sysbench", "sysbench"),
                ("wrk", "wrk"),
                ("ab", "apache2-utils"),
                ("h2load", "nghttp2-client"),
                ("perf", "linux-perf", "linux-tools-generic"),
            )
        ),
        Need("nginx", "benchmarks", "no benchmark of HTTP", _named("nginx"), nginx),
    ]  # fmt: skip


def needs_of(goal: str) -> list[Need]:
    """Return the needs of a goal of set-up."""
    more = {"test": test_needs, "bench": bench_needs}.get(goal, list)
    return [*quick_needs(), *more()]


def required_package(name: str, purpose: str) -> Need:
    """Return the need for a required program whose package has the same name."""
    program = Program((name,), purpose, {"apt": name})
    without = "this cannot continue"
    return Need(name, purpose, without, _named(name), _packages(name), program, required=True)
