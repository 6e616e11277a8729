"""Hosts over SSH whose login shell prints text of its own, or is not a POSIX shell."""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd
from tare.errors import InputError, MachineFault
from tare.hosts.ssh.host import SshHost

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another passwd needs mount namespaces")
START_UP = {
    "bash": ".bashrc",
    "zsh": ".zshenv",
    "tcsh": ".tcshrc",
    "csh": ".cshrc",
    "fish": ".config/fish/config.fish",
}
SHELLS = [*START_UP, "dash"]


@contextmanager
def login_shell(
    folder: Path, shell: str, start_up: str = "", *, sshd_config: str = "", mounts: str = ""
) -> Iterator[Sshd]:
    """Hold an SSH server whose user has a home and a login shell of its own.

    Args:
        folder: Where the server and the home are.
        shell: The shell's path.
        start_up: What the shell's start-up file holds.
        sshd_config: Further lines for the server.
        mounts: Commands that mount further file systems for the server.
    """
    home = folder / "home"
    file = home / START_UP.get(Path(shell).name, ".profile")
    file.parent.mkdir(parents=True)
    file.write_text(start_up)
    lines = []
    for line in Path("/etc/passwd").read_text().splitlines():
        words = line.split(":")
        if words[0] == getpass.getuser():
            words[5:7] = [str(home), shell]
        lines.append(":".join(words))
    passwd = folder / "passwd"
    passwd.write_text("\n".join([*lines, ""]))
    script = f'mount --bind {passwd} /etc/passwd && {mounts or ":"} && exec "$@"'
    server_folder = folder / "sshd"
    server_folder.mkdir()
    server = Sshd(server_folder, wrap=("unshare", "-m", "sh", "-c", script, "sh"))
    config = server_folder / "config"
    config.write_text(config.read_text() + sshd_config)
    try:
        server.start()
        yield server
    finally:
        server.stop()


async def use_everything(sshd: Sshd, agent: Path, folder: Path) -> None:
    """Use each way of a host: commands, streams of bytes, files."""
    every_byte = bytes(range(256)) * 2000
    async with SshHost(sshd.options(), agent) as host:
        done = await host.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
        assert (await host.run(["cat"], input=every_byte)).stdout == every_byte
        await host.write(folder / "written", every_byte)
        assert await host.read(folder / "written") == every_byte
        (folder / "local").write_bytes(every_byte)
        await host.put(folder / "local", folder / "put")
        assert (folder / "put").read_bytes() == every_byte
        process = await host.start(["cat"])
        process.stdin.write(every_byte)
        process.stdin.write_eof()
        assert await process.stdout.read() == every_byte
        assert await process.wait() == 0
        # Over a second connection, too.
        sshd.cut()
        assert (await host.run(["echo", "again"])).stdout == b"again\n"


@pytest.mark.parametrize("shell", SHELLS)
async def test_output_of_a_start_up_file_is_ignored(
    shell: str, tmp_path: Path, agent_program: Path
) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell}: apt-get install {shell}")
    noise = "echo hello from the start-up file\n"
    with login_shell(tmp_path, path, noise) as sshd:
        await use_everything(sshd, agent_program, tmp_path)


@pytest.mark.parametrize(
    "noise",
    [
        "printf 'no end of line'",
        "printf '\\033[1;32mWelcome\\033[0m\\r\\n\\033]0;title\\007'",
        "echo to the other stream >&2",
        "printf '\\001\\000\\000\\000\\377\\376binary\\n'",
        "printf '13\\n\\n\\n{\"done\":1}\\n\\n'",
        "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2",
        "set -xv",
        "trap 'echo goodbye; echo goodbye >&2' EXIT",
        "sleep 1; echo slow",
    ],
)
async def test_any_login_shell_output_is_tolerated(
    noise: str, tmp_path: Path, agent_program: Path
) -> None:
    with login_shell(tmp_path, "/bin/bash", f"{noise}\n") as sshd:
        await use_everything(sshd, agent_program, tmp_path)


async def test_a_forced_command_that_passes_ours_on(tmp_path: Path, agent_program: Path) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\necho before; sh -c "$SSH_ORIGINAL_COMMAND"; echo after\n')
    wrapper.chmod(0o755)
    with login_shell(tmp_path, "/bin/sh", sshd_config=f"ForceCommand {wrapper}\n") as sshd:
        await use_everything(sshd, agent_program, tmp_path)


async def test_a_banner_is_ignored(tmp_path: Path, agent_program: Path) -> None:
    (tmp_path / "banner").write_text("Authorized use only\n\x1b[31m*****\n")
    more = f"Banner {tmp_path}/banner\nPrintMotd yes\n"
    with login_shell(tmp_path, "/bin/bash", sshd_config=more) as sshd:
        await use_everything(sshd, agent_program, tmp_path)


@pytest.mark.parametrize(
    ("shell", "start_up", "sshd_config", "words"),
    [
        ("/usr/sbin/nologin", "", "", "runs no commands.*status 1.*not available"),
        ("/bin/false", "", "", "runs no commands.*status 1.*prints nothing"),
        ("/bin/bash", "echo closed for today; exit 0", "", "something other.*closed for today"),
        ("/bin/bash", "exec cat", "", "something other"),
        ("/bin/bash", "echo stop; exit 7", "", "status 7: stop"),
        ("/bin/bash", "", "ForceCommand echo only this\n", "something other.*: only this"),
        ("/bin/bash", "", "ForceCommand internal-sftp\n", "status 1: .*sftp"),
        ("/bin/bash", "yes", "", "prints without end: y y y"),
        ("/bin/bash", "yes >&2", "", "prints without end"),
    ],
)
async def test_a_login_shell_that_runs_no_commands_is_named(
    shell: str,
    start_up: str,
    sshd_config: str,
    words: str,
    tmp_path: Path,
    agent_program: Path,
) -> None:
    with (
        login_shell(tmp_path, shell, f"{start_up}\n", sshd_config=sshd_config) as sshd,
        pytest.raises(MachineFault, match=words) as caught,
    ):
        await SshHost(sshd.options(), agent_program).connect()
    assert "try: ssh" in caught.value.hint


async def test_a_start_up_file_that_never_ends(tmp_path: Path, agent_program: Path) -> None:
    with (
        login_shell(tmp_path, "/bin/bash", "sleep 1000\n") as sshd,
        pytest.raises(MachineFault, match="did not run a command within 8 s") as caught,
    ):
        await SshHost(sshd.options(connect_s=2), agent_program).connect()
    assert "start-up files" in caught.value.hint


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ("mount -t tmpfs -o noexec tmpfs {place}", "mounted noexec"),
        ("mount -t tmpfs -o ro tmpfs {place}", "read-only"),
        ("mount -t tmpfs -o size=64k tmpfs {place}", "free, but .* are needed"),
        ("mount -t tmpfs -o nr_inodes=1 tmpfs {place}", "no free inode"),
    ],
)
async def test_a_folder_where_the_agent_cannot_be_is_named(
    mount: str, words: str, tmp_path: Path, agent_program: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    mounts = mount.format(place=place)
    with login_shell(tmp_path, "/bin/sh", mounts=mounts) as sshd:
        for options in (
            sshd.options(kept_in=place),
            sshd.options(agent_folder=place / "tare-agent-x"),
            sshd.options(kept_in=place, sudo=bool(shutil.which("sudo"))),
        ):
            with pytest.raises(InputError, match=words) as caught:
                await SshHost(options, agent_program).connect()
            assert str(place) in caught.value.message
            assert "folder: /var/tmp" in caught.value.hint
    assert not list(place.iterdir())


async def test_the_folder_that_is_suggested_works(tmp_path: Path, agent_program: Path) -> None:
    mounts = "mount -t tmpfs -o noexec tmpfs /var/tmp && mount -t tmpfs -o ro tmpfs /opt"
    place = tmp_path / "home"
    with login_shell(
        tmp_path, "/bin/sh", mounts=f"mount -t tmpfs -o noexec tmpfs {place} && {mounts}"
    ) as sshd:
        with pytest.raises(InputError, match="noexec") as caught:
            await SshHost(sshd.options(kept_in=place), agent_program).connect()
        better = caught.value.hint.partition("`folder: ")[2].partition("`")[0]
        assert better == "/tmp"
        async with SshHost(sshd.options(kept_in=Path(better)), agent_program) as host:
            assert (await host.run(["true"])).ok
            await host.remove(host.agent.parent)
