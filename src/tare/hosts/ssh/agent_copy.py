"""The agent's program on a host over SSH: copied there once, to a folder where it can run."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.address_pair import UNKNOWN, AddressPair, of_transport, told_by_sshd
from tare.hosts.folders import ELSEWHERE, LOOK_AT_FOLDERS, read_folders, usable
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.shell import NotRun, run_script

# What e_machine of an ELF header says (elf(5)), as uname says it.
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
    """An open connection, and where the host keeps the agent and a keeper's directory.

    ``seen_here`` are the addresses of the connection as they are seen here, ``seen_there`` as the
    host reports them.
    """

    connection: asyncssh.SSHClientConnection
    agent: str
    keeper: str
    seen_here: AddressPair
    seen_there: AddressPair


async def prepare(
    connection: asyncssh.SSHClientConnection, agent: Path, options: SshOptions
) -> Door:
    """Copy the agent to the host unless its very bytes are there already.

    Raises:
        InputError: The agent is for another kind of processor than the host's, or cannot be put
            where it is to be.
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
    folder, machine, found, told = lines
    built_for = _MACHINES.get(int.from_bytes(content[18:20], "little"), machine)
    if machine != built_for:
        raise InputError(
            f"{options.name} has a processor of kind {machine}, and the agent here is for "
            f"{built_for}",
            f"name an agent that was built for {machine}",
        )
    if found.split()[0] != digest:
        put = await run_script(connection, _PUT, folder, input=content)
        if put.returncode != 0:
            fault = await unusable(connection, options, folder, len(content))
            raise fault or _not_taken(options, folder, put.words)
    return Door(
        connection,
        f"{folder}/tare-agent",
        f"/tmp/tare-keep-{secrets.token_hex(16)}",
        # Through another computer, asyncssh reports that one's end; a program reports none.
        UNKNOWN if options.indirect else of_transport(connection.get_extra_info),
        told_by_sshd(told),
    )


async def unusable(
    connection: asyncssh.SSHClientConnection, options: SshOptions, folder: str, size: int
) -> InputError | None:
    """Return why the agent cannot run in a folder of the host, and which folder to name instead.

    Args:
        connection: The way to the host.
        options: How it is reached.
        folder: The folder.
        size: The agent's bytes.

    Returns:
        None where nothing is wrong with the folder.
    """
    looked = await run_script(connection, LOOK_AT_FOLDERS, folder, *ELSEWHERE)
    folders = read_folders(looked.stdout.decode(errors="replace"))
    if not folders or not (obstacle := folders[0].obstacle(size)):
        return None
    return _in_no_folder(options, folder, obstacle, usable(folders[1:], size))


def _in_no_folder(
    options: SshOptions, folder: str, obstacle: str, better: str | None
) -> InputError:
    instead = better or "/A/FOLDER/WHERE/PROGRAMS/MAY/RUN"
    return InputError(
        f"the agent cannot be kept in {folder} on {options.name}: {obstacle}",
        f"write `folder: {instead}` next to `ssh: {options.host}`",
    )


def _not_taken(options: SshOptions, folder: str, words: str) -> TareError:
    return _in_no_folder(options, folder, words or "it cannot be written there", None)


async def take_back(connection: asyncssh.SSHClientConnection, options: SshOptions) -> None:
    """Remove the agent from a folder of its own, where :func:`prepare` has put it."""
    if options.agent_folder is not None:
        await run_script(connection, 'rm -rf "$1"', str(options.agent_folder))
