"""Install packages with apt without changing any package that is installed already.

apt answers a request for ``runc`` on a Docker server by removing Docker, and a request for a header
package on a computer without the latest updates by upgrading the C library. So every request is
simulated first, and refused if the simulation does anything but add packages.

Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SAFE = (
    "--no-remove",
    "--no-upgrade",
    "--no-install-recommends",
    # Set-up forbids actions that the computer's own apt.conf may allow.
    *("-o", "APT::Get::AutomaticRemove=false"),
    *("-o", "APT::Get::Purge=false"),
    *("-o", "APT::Get::Force-Yes=false"),
    *("-o", "APT::Get::allow-downgrades=false"),
    *("-o", "APT::Get::allow-change-held-packages=false"),
    *("-o", "APT::Get::allow-remove-essential=false"),
    *("-o", "APT::Install-Suggests=false"),
)
"""Options under which apt adds packages, and ends with an error instead of doing anything else."""

_REAL = (
    *("-y", "-q"),
    *("-o", "DPkg::Lock::Timeout=60"),
    *("-o", "Dpkg::Options::=--force-confdef"),
    *("-o", "Dpkg::Options::=--force-confold"),
)
_QUIET = (
    "DEBIAN_FRONTEND=noninteractive",
    "APT_LISTCHANGES_FRONTEND=none",
    # Ubuntu's needrestart would restart services whose libraries an earlier upgrade replaced.
    "NEEDRESTART_SUSPEND=1",
    "LC_ALL=C",
)
_NETWORK = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20")
CHANGES = "apt would"
"""The beginning of the reason why a request that apt could fulfil is refused."""
_FRESH_S = 6 * 3600
_UNIT_FOLDERS = ("etc", "run", "usr/local/lib", "usr/lib", "lib")

_INSTALL = re.compile(r"^Inst (\S+?)(?: \[([^\]]*)\])? \((\S+)")
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+)")
_CONFIGURE = re.compile(r"^Conf (\S+)")


class Unavailable(Exception):
    """Nothing can be installed here now; the text says why and what to type."""


@dataclass(frozen=True)
class Plan:
    """The effects of an installation by apt.

    Args:
        new: The packages that apt would add.
        harm: The reason why it must not be done; empty if it only adds packages.
    """

    new: tuple[str, ...]
    harm: str = ""


@dataclass(frozen=True)
class Choice:
    """Packages that are installed together or left out together.

    Args:
        packages: Their names.
        units: The systemd units that they would start, and that are to stay off.
    """

    packages: tuple[str, ...]
    units: tuple[str, ...] = ()


@dataclass
class Apt:
    """The computer's apt.

    Args:
        root: The folder that contains systemd's folders; tests use another one.
    """

    root: Path = Path("/")
    _states: Mapping[str, str] | None = None
    _plans: dict[tuple[str, ...], Plan] = field(default_factory=dict)
    _rooted: list[str] | None = None

    # The packages that apt offers.

    def works_here(self) -> bool:
        """Return whether this computer's packages are managed by apt."""
        tools = ("apt-get", "apt-cache", "apt-config", "dpkg")
        return all(shutil.which(tool) for tool in tools) and bool(self.states())

    def states(self) -> Mapping[str, str]:
        """Return the status of each package that dpkg knows, such as ``hold ok installed``.

        Packages for another kind of processor have its name after a colon, as in ``libc6:i386``.
        """
        if self._states is None:
            native = _configured("APT::Architecture", "")
            self._states = _read_states(self._status_file(), native)
        return self._states

    def is_installed(self, package: str) -> bool:
        """Return whether a package is installed, in whatever state."""
        return self.states().get(package, "").endswith(" installed")

    def unfinished(self) -> str:
        """Describe unfinished work of dpkg and the command to type; empty if there is none."""
        broken = sorted(
            name
            for name, state in self.states().items()
            if state.split()[2] not in ("installed", "not-installed", "config-files")
            or state.split()[1] != "ok"
        )
        if broken:
            return (
                f"dpkg has not finished with {' '.join(broken)}; "
                "finish first: dpkg --configure -a; apt-get --fix-broken install"
            )
        journal = self._status_file().parent / "updates"
        if journal.is_dir() and any(each.name.isdigit() for each in journal.iterdir()):
            return "dpkg was interrupted; finish first: dpkg --configure -a"
        return ""

    def candidates(self, packages: Iterable[str]) -> dict[str, str]:
        """Return the version of each package that apt would install; omit unavailable ones."""
        shown = _output(["apt-cache", "policy", *packages])
        found = re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (\S+)$", shown, re.MULTILINE)
        return {package: version for package, version in found if version != "(none)"}

    def names(self, pattern: str) -> list[str]:
        """Return the packages whose names match a regular expression."""
        lines = _output(["apt-cache", "search", "--names-only", pattern]).splitlines()
        return [line.split(" ", 1)[0] for line in lines]

    # Simulation.

    def plan(self, packages: Sequence[str]) -> Plan:
        """Simulate the installation of packages that are not installed."""
        key = tuple(packages)
        if key not in self._plans:
            self._plans[key] = self._simulated(key)
        return self._plans[key]

    def harmless(self, packages: Sequence[str], along: Sequence[str] = ()) -> tuple[str, ...]:
        """Return a request to apt for packages that changes nothing that is installed.

        If the usual version would change something, other versions are tried: a computer with parts
        of a newer QEMU can have the rest of it from the same suite.

        Args:
            packages: The packages to install.
            along: Packages that are installed in the same call.

        Returns:
            The packages, perhaps with their suite; empty if there is no such request.
        """
        for asked in self._ways(packages):
            if not self.plan((*along, *asked)).harm:
                return asked
        return ()

    def _ways(self, packages: Sequence[str]) -> Iterable[tuple[str, ...]]:
        yield tuple(packages)
        if not self.plan(packages).harm:
            return
        for suite in self._suites(packages[0]):
            yield tuple(f"{package}/{suite}" for package in packages)

    def _suites(self, package: str) -> list[str]:
        suites = []
        for line in _output(["apt-cache", "madison", package]).splitlines():
            fields = [part.strip() for part in line.split("|")]
            if len(fields) == 3 and fields[2].endswith(" Packages"):
                suites.append(fields[2].split()[1].split("/")[0])
        return [suite for suite in dict.fromkeys(suites) if re.fullmatch(r"[\w.-]+\w", suite)]

    def _simulated(self, packages: tuple[str, ...]) -> Plan:
        # Without --no-remove, the simulation shows what would be removed.
        options = [option for option in SAFE if option != "--no-remove"]
        # As root, even a simulation would write to apt's log of its planner.
        quiet = ("-s", "-q", "-o", "Dir::Log::Planner=/dev/null")
        ended = _run(["apt-get", *quiet, *options, "install", *packages])
        text = ended.stdout + ended.stderr
        added: list[str] = []
        changed: list[str] = []
        removed: list[str] = []
        configured: list[str] = []
        for line in ended.stdout.splitlines():
            if found := _INSTALL.match(line):
                name, old, new = found.groups()
                (added if old is None else changed).append(
                    name if old is None else f"{name} ({old} to {new})"
                )
            elif found := _REMOVE.match(line):
                removed.append(found[1])
            elif found := _CONFIGURE.match(line):
                configured.append(found[1])
        replaced = {line.split(" ", 1)[0] for line in changed}
        others = sorted(set(configured) - set(added) - replaced)
        held = [name for name in added if self.states().get(name, "").startswith("hold ")]
        foreign = [name for name in added if ":" in name]
        reasons = [
            _listed("remove", removed),
            _listed("replace", changed),
            _listed("finish the installation of", others),
            _listed("add, for another kind of processor,", foreign),
            f"{' '.join(held)} is held (apt-mark hold)" if held else "",
        ]
        if ended.returncode and not any(reasons):
            reasons = [_complaint(text) or f"apt-get ended with status {ended.returncode}"]
        elif not added and not any(reasons):
            reasons = ["apt has nothing to add for it"]
        return Plan(tuple(added), "; ".join(filter(None, reasons)))

    def _status_file(self) -> Path:
        return Path(_configured("Dir::State::status/f", "/var/lib/dpkg/status"))

    # Changes of the computer.

    def lists_are_fresh(self) -> bool:
        """Return whether the package lists were read less than 6 hours ago."""
        folder = Path(_configured("Dir::State::lists/d", "/var/lib/apt/lists"))
        if not any(folder.glob("*Packages*")):
            return False
        times = [place.stat().st_mtime for place in (folder, folder / "partial") if place.is_dir()]
        return time.time() - max(times) < _FRESH_S

    def read_lists(self) -> str:
        """Read the package lists again; return what failed, or an empty text."""
        ended = _run([*self.rooted(), "apt-get", "update", "-q", *_NETWORK])
        self._plans.clear()
        if ended.returncode == 0:
            return ""
        return _complaint(ended.stdout + ended.stderr) or "it failed"

    def install(self, choices: Sequence[Choice]) -> str:
        """Add packages whose plan is harmless.

        Args:
            choices: The packages to add; their units are kept off.

        Returns:
            The failure, in apt's words; empty if everything was installed.
        """
        packages = [package for choice in choices for package in choice.packages]
        got = self._apt_get("--download-only", *packages)
        if got and not self.lists_are_fresh():
            # The mirror has newer files than the lists name.
            self.read_lists()
            got = self._apt_get("--download-only", *packages)
        if got:
            return got
        # New lists may have changed the effects of the request.
        self._plans.clear()
        if harm := self.plan(packages).harm:
            return harm
        units = [unit for choice in choices for unit in choice.units if not self.unit_file(unit)]
        masked = self._mask(units)
        failed = self._apt_get("--no-download", *packages)
        self._states = None
        if failed and masked:
            _run([*self.rooted(), "systemctl", "unmask", "--quiet", *masked])
        return failed

    def rooted(self) -> list[str]:
        """Return the words that make a command run as root; sudo asks for a password only once."""
        if self._rooted is None:
            self._rooted = as_root()
        return self._rooted

    def unit_file(self, unit: str) -> Path | None:
        """Return the file of a systemd unit that this computer has already; None if it has none."""
        for folder in _UNIT_FOLDERS:
            file = self.root / folder / "systemd/system" / unit
            if os.path.lexists(file):
                return file
        return None

    def existing_units(self, units: Iterable[str]) -> list[str]:
        """Return the units that exist although their package is not installed, and may run."""
        found = ((unit, self.unit_file(unit)) for unit in units)
        return [unit for unit, file in found if file and file.resolve() != Path("/dev/null")]

    def _mask(self, units: Sequence[str]) -> list[str]:
        if not units or not shutil.which("systemctl"):
            return []
        ended = _run([*self.rooted(), "systemctl", "mask", "--quiet", *units])
        return list(units) if ended.returncode == 0 else []

    def _apt_get(self, *words: str) -> str:
        variables = list(_QUIET)
        if not shutil.which("systemctl"):
            # invoke-rc.d(8) starts nothing in this runlevel.
            variables.append("RUNLEVEL=1")
        command = ["apt-get", "install", *_REAL, *_NETWORK, *SAFE, *words]
        ended = _run([*self.rooted(), "env", *variables, *command])
        if ended.returncode == 0:
            return ""
        return _complaint(ended.stdout + ended.stderr) or f"apt-get: status {ended.returncode}"


def as_root() -> list[str]:
    """Return the words that make a command run as root.

    Raises:
        Unavailable: This user cannot run commands as root.
    """
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        raise Unavailable("packages are installed by root, and there is no sudo here")
    ended = _run(["sudo", "-n", "env", "true"])
    if ended.returncode == 0:
        return ["sudo"]
    # At a terminal, sudo can ask for the password itself.
    if sys.stdin.isatty() and subprocess.run(["sudo", "env", "true"], check=False).returncode == 0:
        return ["sudo"]
    words = (ended.stderr.strip().splitlines() or ["it failed"])[-1].removeprefix("sudo: ")
    raise Unavailable(f"packages are installed by root, and sudo does not allow it: {words}")


def _configured(name: str, default: str) -> str:
    found = re.search(r"value='(.*)'", _output(["apt-config", "shell", "value", name]))
    return found[1] if found else default


def _read_states(file: Path, native: str) -> dict[str, str]:
    """Return the status of each package in dpkg's database; see :meth:`Apt.states`."""
    try:
        paragraphs = file.read_text(errors="replace").split("\n\n")
    except OSError:
        return {}
    states: dict[str, str] = {}
    for paragraph in paragraphs:
        fields = dict(re.findall(r"^(Package|Status|Architecture): *(.*?) *$", paragraph, re.M))
        if len(fields.get("Status", "").split()) == 3 and "Package" in fields:
            kind = fields.get("Architecture", "all")
            foreign = "" if kind in (native, "all") or not native else f":{kind}"
            states[fields["Package"] + foreign] = fields["Status"]
    return states


def _listed(verb: str, names: Sequence[str]) -> str:
    return f"{CHANGES} {verb} {', '.join(names)}" if names else ""


def _complaint(text: str) -> str:
    """Return the lines of apt's output that explain a failure, joined in one line."""
    lines = [line.strip() for line in text.splitlines()]
    unmet = [line for line in lines if re.match(r"\S+ : (Pre-)?(Depends|Conflicts|Breaks)", line)]
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E: ")]
    return "; ".join([*unmet[:2], *errors[:2]])


def _output(command: Sequence[str]) -> str:
    return _run(command).stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env=variables,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: {error.strerror}")
