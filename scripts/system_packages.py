"""Provide the programs that a make target needs, and change nothing else on the computer.

What is missing is printed with its use before anything is installed. With ``NO_INSTALL`` in the
environment, and where there is no apt, it is only printed. Parts that cannot be installed without
changing an installed package are left out, each with the reason.

usage: python3 -m scripts.system_packages quick|test|bench [--have NAME]... [--list]
       python3 -m scripts.system_packages only PACKAGE --for PURPOSE

Exit status: 1 if a part is missing without which the target cannot continue. The script uses only
the standard library, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.apt_install import CHANGES, Apt, Choice, Unavailable
from tare import programs
from tare.programs import Program

ROOT = Path(__file__).resolve().parents[1]
RUSTUP = "https://rustup.rs"

Choices = Callable[[Apt], Sequence[Choice]]


@dataclass(frozen=True)
class Need:
    """One thing that a make target uses.

    Args:
        name: What it is called, mostly a program.
        purpose: What for.
        without: What is lost without it.
        is_there: Whether this computer has it.
        choices: What apt may install for it, the preferred first.
        program: The same for other package managers, where it is known.
        required: Whether the target cannot continue without it.
        hint: How else to get it.
    """

    name: str
    purpose: str
    without: str
    is_there: Callable[[], bool]
    choices: Choices
    program: Program | None = None
    required: bool = False
    hint: str = ""


def say(words: str) -> None:
    """Print a line as set-up does."""
    print(f"\033[1mtare setup:\033[0m {words}", flush=True)


# How to find out whether something is there.


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


# What to install for it.


def _packages(*names: str, units: tuple[str, ...] = ()) -> Choices:
    """Return a choice of one set of packages."""
    return lambda _apt: [Choice(names, units)]


def _any_of(*names: str) -> Choices:
    """Return a choice among packages, the preferred first."""
    return lambda _apt: [Choice((name,)) for name in names]


def _rust(apt: Apt) -> list[Choice]:
    """Return the distribution's Rusts that are new enough.

    Debian 12 has a newer one than its own to build browsers with, Ubuntu has newer ones that are
    named by their version.
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
    """Return Incus, or LXD where the distribution has it as a package and not as a snap.

    Bridges of both need dnsmasq, and VMs of Incus a module of QEMU's.
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
    """Return the need of a program of Tare's own table."""
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
    """Return what setting up and the quick study use."""
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
    """Return what the tests use in addition."""
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
    """Return what the benchmarks use in addition."""
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
    """Return what a goal of set-up uses."""
    more = {"test": test_needs, "bench": bench_needs}.get(goal, list)
    return [*quick_needs(), *more()]


# What to do about what is missing.


@dataclass
class Outcome:
    """What is to be installed for which need, and what is left out.

    Args:
        chosen: Each need with what is installed for it.
        new: All packages that apt adds.
        left: Each need that is left out, with the reason.
    """

    chosen: list[tuple[Need, Choice]] = field(default_factory=list)
    new: tuple[str, ...] = ()
    left: list[tuple[Need, str]] = field(default_factory=list)


def choose(apt: Apt, missing: Sequence[Need]) -> Outcome:
    """Find out for each need what can be installed without changing an installed package."""
    options = [(need, need.choices(apt)) for need in missing]
    if (together := _all_at_once(apt, options)) is not None:
        return together
    outcome = Outcome()
    asked: list[str] = []
    for need, choices in options:
        choice, reason = _chosen(apt, need, choices, asked)
        if choice is None:
            outcome.left.append((need, reason))
            continue
        outcome.chosen.append((need, choice))
        asked += [package for package in choice.packages if package not in asked]
    outcome.new = apt.plan(asked).new if asked else ()
    return outcome


def _all_at_once(apt: Apt, options: Sequence[tuple[Need, Sequence[Choice]]]) -> Outcome | None:
    """Return the outcome if the preferred packages of all needs can be added together."""
    outcome = Outcome()
    for need, choices in options:
        wanted = choices[0].packages if choices else ()
        packages = tuple(package for package in wanted if not apt.is_installed(package))
        if not packages or apt.existing_units(choices[0].units):
            return None
        outcome.chosen.append((need, Choice(packages, choices[0].units)))
    asked = dict.fromkeys(package for _, choice in outcome.chosen for package in choice.packages)
    plan = apt.plan(tuple(asked))
    outcome.new = plan.new
    return None if plan.harm else outcome


def _chosen(
    apt: Apt, need: Need, choices: Sequence[Choice], along: Sequence[str]
) -> tuple[Choice | None, str]:
    """Return what can be installed for a need along with other packages, or why nothing can."""
    reasons = []
    for choice in choices:
        wanted = [package for package in choice.packages if not apt.is_installed(package)]
        if not wanted:
            packages = " ".join(choice.packages)
            reasons.append(
                f"{packages} is installed, but {need.name} is not there or does not suffice"
            )
            continue
        if running := apt.existing_units(choice.units):
            reasons.append(f"{' '.join(wanted)}: this computer has {', '.join(running)} already")
            continue
        if asked := apt.harmless(wanted, along):
            return Choice(asked, choice.units), ""
        reasons.append(f"{' '.join(wanted)}: {apt.plan((*along, *wanted)).harm}")
    return None, "; ".join(reasons) or "this distribution has no package that suffices"


def provide(apt: Apt, needs: Sequence[Need], *, only_list: bool) -> int:
    """Install what is missing, or only list it; see the module.

    Returns:
        The exit status.
    """
    missing = [need for need in needs if not need.is_there()]
    if not missing:
        if only_list:
            say("nothing is missing here")
        return 0
    if only_list or not apt.works_here():
        _list(apt, missing, only_list=only_list)
        return _status(missing)
    try:
        _require_ready(apt)
    except Unavailable as problem:
        say(f"nothing is installed: {problem}")
        _list(apt, missing, only_list=False)
        return _status(missing)
    if not apt.lists_are_fresh():
        _read_lists(apt)
    outcome = choose(apt, missing)
    _announce(outcome)
    if not outcome.chosen:
        return _status(missing)
    failed = apt.install([choice for _, choice in outcome.chosen])
    if failed:
        say(f"apt could not install this: {failed}")
    still = [need for need in missing if not _is_there_now(need, outcome, failed)]
    for need in still:
        if need not in [left for left, _ in outcome.left]:
            say(f"left out: {need.name}; {need.without}")
    return _status(still)


def _is_there_now(need: Need, outcome: Outcome, failed: str) -> bool:
    was_chosen = any(need is each for each, _ in outcome.chosen)
    return need.is_there() or (was_chosen and not failed)


def _require_ready(apt: Apt) -> None:
    """Raise Unavailable if this computer or user cannot install anything now."""
    if unfinished := apt.unfinished():
        raise Unavailable(unfinished)
    if os.geteuid() != 0 and sys.stdin.isatty():
        say("root installs packages: sudo may ask for your password (NO_INSTALL=1 leaves it out)")
    apt.rooted()


def _read_lists(apt: Apt) -> None:
    say("reading the package lists")
    if problem := apt.read_lists():
        say(f"the package lists could not be read in full, so older ones are used: {problem}")


def _announce(outcome: Outcome) -> None:
    if outcome.chosen:
        say("installing:")
    for need, choice in outcome.chosen:
        print(f"    {' '.join(choice.packages)}: for {need.name}, {need.purpose}")
    named = {package.split("/")[0] for _, each in outcome.chosen for package in each.packages}
    if more := [package for package in outcome.new if package not in named]:
        print(f"    and what these need: {' '.join(more)}")
    for _, choice in outcome.chosen:
        if choice.units and shutil.which("systemctl"):
            units = " ".join(choice.units)
            print(f"    {choice.packages[0]} stays off; to use it: systemctl unmask {units}")
    for need, reason in outcome.left:
        print(f"    left out: {need.name} ({reason}); {need.without}")
    for line in _own_decision(outcome.left):
        print(f"    {line}")
    sys.stdout.flush()


def _list(apt: Apt, missing: Sequence[Need], *, only_list: bool) -> None:
    """Print what is missing, and the command that installs it on this distribution."""
    say("missing here (nothing is installed, as NO_INSTALL is set):" if only_list else "missing:")
    for need in missing:
        kind = "needed" if need.required else "optional"
        print(f"    {need.name} ({kind}), for {need.purpose}; without it: {need.without}")
    for line in _commands(apt, missing):
        print(f"    {line}")
    sys.stdout.flush()


def _commands(apt: Apt, missing: Sequence[Need]) -> list[str]:
    hints = [need.hint for need in missing if need.hint]
    if apt.works_here() and not apt.unfinished():
        outcome = choose(apt, missing)
        packages = [package for _, choice in outcome.chosen for package in choice.packages]
        lines = [f"{need.name} cannot be installed harmlessly: {why}" for need, why in outcome.left]
        lines += _own_decision(outcome.left)
        if packages:
            command = programs.INSTALLERS["apt"]
            lines.insert(0, f"to install: {command} {' '.join(dict.fromkeys(packages))}")
        return list(dict.fromkeys([*lines, *hints]))
    wanted = [need.program for need in missing if need.program is not None]
    text = _text(Path("/etc/os-release"))
    return [f"to install: {programs.install_command(text, wanted)}", *hints] if wanted else hints


def _own_decision(left: Sequence[tuple[Need, str]]) -> list[str]:
    """Return what a user may type for needed parts that set-up must not install."""
    able = [need for need, reason in left if need.required and CHANGES in reason]
    needed = [need.program for need in able if need.program]
    packages = [program.packages["apt"] for program in needed]
    if not packages:
        return []
    command = f"{programs.INSTALLERS['apt']} {' '.join(packages)}"
    hints = [need.hint for need in able if need.hint]
    return [
        f"this is needed; if you accept the change, type as root: {command}",
        *hints,
    ]


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _status(missing: Sequence[Need]) -> int:
    return int(any(need.required for need in missing))


def refresh_kernels(apt: Apt) -> None:
    """Read the package lists where they name no kernel: guests boot the distribution's own."""
    if apt.names("^linux-image-"):
        return
    try:
        apt.rooted()
    except Unavailable as problem:
        say(f"apt's lists name no kernel for guests: run `apt-get update` as root ({problem})")
        return
    _read_lists(apt)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description="Provide the programs of a make target.")
    parser.add_argument("goal", choices=("quick", "test", "bench", "only"))
    parser.add_argument("package", nargs="?", help="with only: the package of one program")
    parser.add_argument("--for", dest="purpose", default="")
    parser.add_argument("--have", action="append", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args(words)
    apt = Apt()
    only_list = asked.list or bool(os.environ.get("NO_INSTALL"))
    if asked.goal == "only":
        name = asked.package or parser.error("name a package")
        program = Program((name,), asked.purpose, {"apt": name})
        need = Need(
            name,
            asked.purpose,
            "this cannot continue",
            _named(name),
            _packages(name),
            program,
            True,
        )
        return provide(apt, [need], only_list=only_list)
    needs = [need for need in needs_of(asked.goal) if need.name not in asked.have]
    status = provide(apt, needs, only_list=only_list)
    if apt.works_here() and not only_list:
        refresh_kernels(apt)
    return status


if __name__ == "__main__":
    sys.exit(main())
