"""The agent's program on a host over SSH: copied there once, to a folder in which it can run."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.address_pair import UNKNOWN, AddressPair, from_sshd, of_transport
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.shell import NotRun, run_script
from tare.units import format_size

ELSEWHERE = ("/var/tmp", "/tmp", "/opt", "/srv", "/dev/shm")
"""Folders that usually exist, to suggest instead of an unusable one."""
# For each folder, or its nearest parent that exists: whether it is writable, and its file system's
# line of `df`. BusyBox has no `df -i`. The last part lists all mounts with their options.
LOOK_AT_FOLDERS = (
    'for folder in "$@"; do at=$folder; '
    'until [ -d "$at" ]; do at=${at%/*}; [ -n "$at" ] || at=/; done; '
    'can=no; [ -w "$at" ] && can=yes; echo "folder $can $folder"; '
    'df -P -k "$at" 2>/dev/null | tail -n 1; df -P -i "$at" 2>/dev/null | tail -n 1; '
    "done; echo mounts; cat /proc/self/mounts"
)
"""A POSIX shell script that describes the folders in its arguments."""


@dataclass(frozen=True)
class Folder:
    """A folder of a host, as :data:`LOOK_AT_FOLDERS` describes it.

    Args:
        path: The folder.
        writable: Whether the user may write there.
        mount: Where its file system is mounted; empty if unknown.
        options: The options of that mount.
        free: Free bytes there; None if unknown.
        inodes: Files that can still be created there; None if unknown.
    """

    path: str
    writable: bool
    mount: str = ""
    options: frozenset[str] = frozenset()
    free: int | None = None
    inodes: int | None = None

    def obstacle(self, size: int, *, running: bool = True) -> str:
        """Return why the folder cannot hold a file; empty if it can.

        Args:
            size: The file's bytes.
            running: Whether the file is a program to run there.
        """
        if running and "noexec" in self.options:
            return f"{self.mount} is mounted noexec, so programs cannot run there"
        if "ro" in self.options:
            return f"{self.mount} is mounted read-only"
        if not self.writable:
            return f"the user may not write to {self.path}"
        if self.inodes == 0:
            return f"{self.mount} has no free inode, so no file can be created there"
        if self.free is not None and self.free < size:
            return (
                f"{self.mount} has {format_size(self.free)} free, but {format_size(size)} are "
                "needed"
            )
        return ""


def read_folders(text: str) -> list[Folder]:
    """Return the folders that :data:`LOOK_AT_FOLDERS` described, in the same order."""
    described, _, mounts = text.partition("\nmounts\n")
    options = dict(_mounts_of(mounts.splitlines()))
    found: list[Folder] = []
    for part in f"\n{described}".split("\nfolder ")[1:]:
        first, *lines = part.splitlines()
        can, _, path = first.partition(" ")
        kinds = [_free(line) for line in lines]
        mount = next((mount for mount, _ in kinds if mount), "")
        found.append(
            Folder(
                path,
                can == "yes",
                mount,
                options.get(mount, frozenset()),
                None if not kinds or kinds[0][1] is None else kinds[0][1] << 10,
                # File systems that create inodes on demand, such as btrfs, report none.
                kinds[1][1] if len(kinds) > 1 and not _uncounted(lines[1]) else None,
            )
        )
    return found


def usable(folders: Iterable[Folder], size: int) -> str | None:
    """Return the first folder in which a program of ``size`` bytes can be stored and run."""
    return next((each.path for each in folders if not each.obstacle(size)), None)


def _mounts_of(lines: Iterable[str]) -> Iterable[tuple[str, frozenset[str]]]:
    """Return mount points and options from lines as in fstab(5)."""
    for line in lines:
        words = line.split()
        if len(words) >= 4:
            yield words[1].encode().decode("unicode_escape"), frozenset(words[3].split(","))


def _free(line: str) -> tuple[str, int | None]:
    """Return the mount point and the available amount from a line of ``df -P``."""
    words = line.rsplit("%", 1)
    left = words[0].split()
    mount = words[1].strip() if len(words) == 2 else line.rpartition(" - ")[2].strip()
    position = -2 if len(words) == 2 else -1
    try:
        return mount, int(left[position])
    except (ValueError, IndexError):
        return mount, None


def _uncounted(line: str) -> bool:
    return line.split()[1:2] == ["0"]


# The e_machine field of an ELF header (elf(5)), and uname's name for it.
_MACHINES = {62: "x86_64", 183: "aarch64"}
_LOOK = (
    'cache="${2:-${3:-${XDG_CACHE_HOME:-$HOME/.cache}}/tare-agent-$1}"; echo "$cache"; uname -m; '
    'sha256sum 2>/dev/null < "$cache/tare-agent" || echo none; '
    'echo "$SSH_CONNECTION"'
)
_PUT = (
    'umask 077; mkdir -p "$1" && part="$1/.part.$$" && { cat > "$part" && chmod 700 "$part" && '
    'mv -f "$part" "$1/tare-agent" || { rm -f "$part"; false; }; }'
)


@dataclass(frozen=True)
class Door:
    """An open connection, and the paths of the agent and of a keeper's directory on the host.

    ``seen_here`` are the connection's addresses as seen here, ``seen_there`` as the host reports
    them.
    """

    connection: asyncssh.SSHClientConnection
    agent: str
    keeper: str
    seen_here: AddressPair
    seen_there: AddressPair


async def prepare(
    connection: asyncssh.SSHClientConnection, agent: Path, options: SshOptions
) -> Door:
    """Copy the agent to the host, unless an identical copy is already there.

    Raises:
        InputError: The agent is for another processor architecture, or cannot be stored in its
            folder.
        MachineFault: The host runs no commands.
    """
    content = await asyncio.to_thread(agent.read_bytes)
    digest = hashlib.sha256(content).hexdigest()
    words = [str(path or "") for path in (options.agent_folder, options.kept_in)]
    try:
        looked = await run_script(connection, _LOOK, digest[:32], *words)
    except NotRun as other:
        raise other.fault(options) from None
    lines = looked.stdout.decode(errors="replace").splitlines()
    if looked.returncode != 0 or len(lines) != 4:
        raise MachineFault(
            f"{options.name} lacks what Tare needs there: {looked.words or 'sh and coreutils'}",
            "install coreutils (cat, mkdir, mv, sha256sum, uname) there",
        )
    folder, machine, found, ssh_connection = lines
    built_for = _MACHINES.get(int.from_bytes(content[18:20], "little"), machine)
    if machine != built_for:
        raise InputError(
            f"{options.name} has the architecture {machine}, but the agent here is for {built_for}",
            f"use an agent that was built for {machine}",
        )
    if found.split()[0] != digest:
        put = await run_script(connection, _PUT, folder, input=content)
        if put.returncode != 0:
            fault = await unusable(connection, options, folder, len(content))
            raise fault or _unwritable_folder(options, folder, put.words)
    return Door(
        connection,
        f"{folder}/tare-agent",
        f"/tmp/tare-keep-{secrets.token_hex(16)}",
        # Through another computer, asyncssh reports that computer's address; a ProxyCommand reports
        # none.
        UNKNOWN if options.indirect else of_transport(connection.get_extra_info),
        from_sshd(ssh_connection),
    )


async def unusable(
    connection: asyncssh.SSHClientConnection, options: SshOptions, folder: str, size: int
) -> InputError | None:
    """Return why the agent cannot run in a folder of the host, and which folder to use instead.

    Args:
        connection: A connection to the host.
        options: The options of the connection.
        folder: The folder.
        size: The agent's bytes.

    Returns:
        The error, or None if the folder is fine.
    """
    looked = await run_script(connection, LOOK_AT_FOLDERS, folder, *ELSEWHERE)
    folders = read_folders(looked.stdout.decode(errors="replace"))
    if not folders or not (obstacle := folders[0].obstacle(size)):
        return None
    return _unusable_folder(options, folder, obstacle, usable(folders[1:], size))


def _unusable_folder(
    options: SshOptions, folder: str, obstacle: str, better: str | None
) -> InputError:
    instead = better or "/A/FOLDER/WHERE/PROGRAMS/MAY/RUN"
    return InputError(
        f"the agent cannot be kept in {folder} on {options.name}: {obstacle}",
        f"write `folder: {instead}` next to `ssh: {options.host}`",
    )


def _unwritable_folder(options: SshOptions, folder: str, words: str) -> TareError:
    return _unusable_folder(options, folder, words or "it cannot be written there", None)


async def take_back(connection: asyncssh.SSHClientConnection, options: SshOptions) -> None:
    """Remove the agent's own folder, if :func:`prepare` made one."""
    if options.agent_folder is not None:
        await run_script(connection, 'rm -rf "$1"', str(options.agent_folder))
