"""QEMU as a separate user, with no more rights than its machine needs.

If Tare is root, each QEMU gets an otherwise unused user id. Tare opens what QEMU needs beforehand,
or gives its user access:

- the image by file descriptors;
- its folder and disk by their owner;
- KVM and vhost by the groups of their devices;
- a tap by the owner whom the kernel lets attach to it.

Huge pages need no permission: the kernel lets any user take them from the pool through a memfd. In
addition QEMU filters its own system calls (``-sandbox``, seccomp(2)).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tare.errors import MachineFault
from tare.plaintext import plain_line
from tare.platforms.linux.rights import as_tare
from tare.platforms.qemu.command import PROGRAM
from tare.platforms.qemu.drive import escaped

if TYPE_CHECKING:
    from tare.hosts import Host

KVM = Path("/dev/kvm")
TUN = Path("/dev/net/tun")
_FIRST_UID = 1_900_000_000
"""User ids above those that distributions and systemd give to users, services and containers
(systemd's docs/UIDS-GIDS.md)."""
_UIDS = 1 << 24
_FIRST_DESCRIPTOR = 3
_LOCKING = ("prlimit", "--memlock=unlimited")
_TRY_S = 60.0
_LONGEST_REASON = 200
_FILTERED = "its system calls filtered"

# Run as root: give the folders to the user, then test as that user that it can use all it needs.
_TRIAL = """
uid=$1 groups=$2 locking=$3 own=$4 program=$(command -v "$5")
shift 5
[ "$(id -u)" = 0 ] || { echo "Tare is not root there"; exit 1; }
while [ "$own" -gt 0 ]; do
    chown "$uid:$uid" "$1" || exit 1
    shift
    own=$((own - 1))
done
exec 2>&1
exec $locking setpriv --reuid="$uid" --regid="$uid" $groups --no-new-privs --pdeathsig=keep sh -c '
[ -x "$1" ] || { echo "its user may not run $1"; exit 1; }
shift
for path; do
    { [ -r "$path" ] && { [ -f "$path" ] || [ -w "$path" ]; }; } ||
        { echo "its user may not use $path"; exit 1; }
done' sh "$program" "$@"
"""
_OPEN = 'for number in $1; do shift; eval "exec $number<\\"\\$1\\""; done; shift; exec "$@"'
_STATUS = re.compile(r"^(Uid|NoNewPrivs|Seccomp):\s+(\d+)", re.MULTILINE)


class Confinable(Protocol):
    """Options of a platform whose hypervisor can be confined."""

    @property
    def confined(self) -> bool:
        """Whether it is to be confined."""
        ...

    @property
    def locks_memory(self) -> bool:
        """Whether it may lock all of its memory."""
        ...


@dataclass(frozen=True)
class Confinement:
    """The confinement in which one QEMU is started.

    Args:
        sandbox: Whether it filters its system calls.
        uid: Its user id; None: that of Tare itself.
        groups: The ids of the groups that it needs for devices.
        reason: Why it has no separate user; empty if it has one, or none was requested.
        mlock: Whether it may lock all of its memory.
        capabilities: The capabilities of root that it keeps, as setpriv(1) names them.
    """

    sandbox: bool = False
    uid: int | None = None
    groups: tuple[int, ...] = ()
    reason: str = ""
    mlock: bool = False
    capabilities: tuple[str, ...] = ()

    def around(self, argv: Sequence[str], files: Sequence[Path]) -> list[str]:
        """Return the command that starts QEMU with this confinement.

        Args:
            argv: QEMU and its arguments.
            files: The files that QEMU reads but may not open itself; ``argv`` contains the same
                paths.
        """
        if self.uid is None:
            return list(argv)
        passed = {escaped(file): str(seen) for file, seen in self.seen(files).items()}
        words = [_passed(word, passed) for word in argv]
        locking = _LOCKING if self.mlock else ()
        numbers = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + len(files))
        opened = [" ".join(map(str, numbers)), *map(str, files)]
        return ["sh", "-c", _OPEN, "sh", *opened, *locking, *self._setpriv(), *words]

    def seen(self, files: Sequence[Path]) -> Mapping[Path, Path]:
        """Return the path under which the process finds each file that :meth:`around` opens."""
        if self.uid is None:
            return {file: file for file in files}
        numbers = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + len(files))
        return {file: Path(f"/dev/fd/{n}") for n, file in zip(numbers, files, strict=True)}

    def _setpriv(self) -> list[str]:
        groups = _groups(self.groups)
        own = [f"--reuid={self.uid}", f"--regid={self.uid}", groups]
        if self.capabilities:
            kept = ",".join(f"+{name}" for name in self.capabilities)
            own += [f"--inh-caps={kept}", f"--ambient-caps={kept}"]
        # A change of the user clears the parent death signal, which ends QEMU with Tare: keep it.
        return ["setpriv", *own, "--no-new-privs", "--pdeathsig=keep"]

    def record(self) -> dict[str, Any]:
        """Return the confinement as the machine's record."""
        user = {"uid": self.uid} if self.uid is not None else {"uid": None, "reason": self.reason}
        return {**user, "sandbox": self.sandbox}


def unused_uid() -> int:
    """Return a random user id from a range that no other program uses."""
    return _FIRST_UID + secrets.randbelow(_UIDS)


async def confinement(
    host: Host,
    options: Confinable,
    *,
    own: Sequence[Path],
    files: Sequence[Path],
    devices: Sequence[Path],
    program: str = PROGRAM,
) -> Confinement:
    """Find out how QEMU can be confined, and give its user the files and folders that it writes.

    Args:
        host: The host on which it will run.
        options: The machine's options.
        own: Folders and files that it writes.
        files: Files that Tare opens for it.
        devices: Devices that it opens itself.
        program: The name of the QEMU to run.
    """
    if not options.confined:
        return Confinement()
    uid = unused_uid()
    groups = await groups_of(host, devices)
    paths = [*own, *devices]
    locking = " ".join(_LOCKING) if options.locks_memory else ""
    words = [str(uid), _groups(groups), locking, str(len(own)), program, *map(str, own)]
    opened = [f"/dev/fd/{n}" for n in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + len(files))]
    trial = ["sh", "-c", _TRIAL, "sh", *words, *opened, *map(str, paths)]
    numbers = " ".join(str(n) for n in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + len(files)))
    argv = ["sh", "-c", _OPEN, "sh", numbers, *map(str, files), *trial]
    done = await host.run(argv, timeout_s=_TRY_S)
    if done.ok:
        return Confinement(True, uid, groups, mlock=options.locks_memory)
    reason = plain_line(done.words(), _LONGEST_REASON) or f"status {done.returncode}"
    return Confinement(True, reason=reason)


async def confined_as(
    host: Host, options: Confinable, devices: Sequence[Path], program: str = PROGRAM
) -> str:
    """Describe with whose rights a hypervisor would run on a host, and why.

    Rights to a machine's own files are tested only when the machine starts.

    Args:
        host: The host on which it would run.
        options: The machine's options.
        devices: Devices that it would open itself.
        program: The name of the program to run.
    """
    found = await confinement(host, options, own=[], files=[], devices=devices, program=program)
    if found.uid is not None:
        return f"a user of its own (from {_FIRST_UID} up), {_FILTERED}: no guest is trusted"
    calls = _FILTERED if found.sandbox else "its system calls not filtered"
    why = found.reason or "the arm says `confined: false`"
    return f"{await as_tare(host, why)}; {calls}"


async def prove_confined(host: Host, name: str, pid: int, asked: Confinement) -> Mapping[str, Any]:
    """Verify in ``/proc/PID/status``, proc(5), that QEMU runs with the requested rights.

    Raises:
        MachineFault: It runs with different rights.
    """
    status = (await host.read(f"/proc/{pid}/status")).decode(errors="replace")
    found = {key: int(value) for key, value in _STATUS.findall(status)}
    if asked.uid is not None and (found.get("Uid"), found.get("NoNewPrivs")) != (asked.uid, 1):
        raise MachineFault(f"{name}: QEMU does not run as its own user: {found}")
    if asked.sandbox and found.get("Seccomp") != 2:
        raise MachineFault(f"{name}: QEMU does not filter its system calls: {found}")
    return asked.record()


async def groups_of(host: Host, devices: Sequence[Path]) -> tuple[int, ...]:
    """Return the group ids of devices, each once, but never root's, even if a device has it.

    Args:
        host: The host that has the devices.
        devices: Their device files; missing files are ignored.
    """
    if not devices:
        return ()
    argv = ["stat", "-L", "-c", "%g", "--", *map(str, devices)]
    done = await host.run(argv, timeout_s=_TRY_S)
    return tuple(sorted({int(word) for word in done.stdout.split()} - {0}))


def _groups(groups: Sequence[int]) -> str:
    return f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"


def _passed(word: str, passed: Mapping[str, str]) -> str:
    """Return an argument of QEMU with its file replaced by the path of the file's descriptor."""
    # A whole word is not a list of options, so nothing is escaped in it.
    whole = escaped(Path(word))
    if whole in passed:
        return passed[whole]
    head, equals, tail = word.rpartition("=")
    return f"{head}{equals}{passed[tail]}" if equals and tail in passed else word
