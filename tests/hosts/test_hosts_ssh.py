"""What goes wrong before a session with a host over SSH is there."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, Way, free_port, make_key
from tare.errors import InputError, MachineFault
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.login_faults import login_fault


async def test_refused_connection_is_reported(sshd: Sshd, agent_program: Path) -> None:
    port = free_port()
    with pytest.raises(MachineFault, match="cannot be reached") as caught:
        await SshHost(sshd.options(port=port), agent_program).connect()
    assert caught.value.transient
    assert f"ssh -p {port}" in caught.value.hint


async def test_an_unknown_key_is_refused_with_its_fingerprint(
    sshd: Sshd, agent_program: Path
) -> None:
    for content in ("", "example.com ssh-ed25519 AAAA\n"):
        sshd.known_hosts.write_text(content)
        with pytest.raises(InputError, match="has no key for") as caught:
            await SshHost(sshd.options(), agent_program).connect()
        call = ["ssh-keygen", "-lf", str(sshd.host_key)]
        shown = subprocess.run(call, capture_output=True, text=True, check=True)
        assert shown.stdout.split()[1] in caught.value.hint
    # The hint's own command makes it work.
    command = caught.value.hint.partition("run: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    async with SshHost(sshd.options(), agent_program) as host:
        assert (await host.run(["true"])).ok


@pytest.mark.parametrize("has_file", [True, False])
async def test_each_cause_has_its_own_message_whether_keys_are_known_or_not(
    has_file: bool, sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    if not has_file:
        sshd.known_hosts.unlink()

    async def says(greeting: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await asyncio.sleep(0.2)
        writer.close()

    async def message(**changes: object) -> str:
        with pytest.raises((InputError, MachineFault)) as caught:
            await SshHost(sshd.options(**changes), agent_program).connect()
        return str(caught.value)

    async def answering(greeting: bytes) -> str:
        server = await asyncio.start_server(lambda _, to: says(greeting, to), "127.0.0.1", 0)
        async with server:
            return await message(port=server.sockets[0].getsockname()[1])

    name = await message(host="no-such-host.invalid")
    assert "there is no host named no-such-host.invalid" in name
    assert "getent hosts no-such-host.invalid" in name
    assert "known_hosts" not in name
    refused = await message(port=free_port())
    assert "nothing accepts connections on port" in refused
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        timeout = await message(port=silent.getsockname()[1], connect_s=0.5)
    assert "did not let Tare in within 0.5 s" in timeout
    closed = await answering(b"")
    assert "closed the connection before the login" in closed
    other = await answering(b"HTTP/1.1 400 Bad Request\r\n" * 2000)
    assert "not a usable SSH server" in other or "cannot be reached" in other
    assert len({name, refused, timeout, closed, other}) == 5


def test_a_name_server_that_does_not_answer_passes(sshd: Sshd) -> None:
    error = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    fault = login_fault(error, sshd.options(host="vm.example"))
    assert isinstance(fault, MachineFault)
    assert fault.transient
    assert "the name server does not answer" in str(fault)


async def test_no_file_of_known_keys(sshd: Sshd, agent_program: Path) -> None:
    sshd.known_hosts.unlink()
    with pytest.raises(InputError, match="there is no file") as caught:
        await SshHost(sshd.options(), agent_program).connect()
    assert "SHA256:" in caught.value.hint


async def test_a_wrong_key_is_refused(sshd: Sshd, agent_program: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
    with pytest.raises(InputError, match="differs from the one in") as caught:
        await SshHost(sshd.options(), agent_program).connect()
    assert "ssh-keygen -f" in caught.value.hint


async def test_refused_login_is_reported(sshd: Sshd, agent_program: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "stranger")
    with pytest.raises(InputError, match="refuses the login") as caught:
        await SshHost(sshd.options(key=key), agent_program).connect()
    assert f"-i {key}" in caught.value.hint


async def test_files_that_are_missing_are_named(sshd: Sshd, agent_program: Path) -> None:
    with pytest.raises(InputError, match="the key file /no/key does not exist"):
        await SshHost(sshd.options(key=Path("/no/key")), agent_program).connect()
    with pytest.raises(InputError, match="no host named"):
        await SshHost(sshd.options(host="no-such-host.invalid"), agent_program).connect()


async def test_secrets_stay_secret(
    sshd: Sshd,
    agent_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("TARE_TEST_PASSWORD", "hunter2")
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(0o600)
    key = make_key(tmp_path / "stranger")
    for options in (
        sshd.options(key=key, password_env="TARE_TEST_PASSWORD"),
        sshd.options(key=key, password_file=file),
    ):
        assert options.password() == "hunter2"
        host = SshHost(options, agent_program)
        with pytest.raises(InputError) as caught:
            await host.connect()
        assert (
            "hunter2" not in f"{options!r} {host!r} {caught.value!r} {caught.value} {caplog.text}"
        )
    file.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        sshd.options(password_file=file).password()
    with pytest.raises(InputError, match="TARE_NO_SUCH"):
        sshd.options(passphrase_env="TARE_NO_SUCH").passphrase()


async def test_silent_host_is_reported(sshd: Sshd, way: Way, agent_program: Path) -> None:
    way.silent = True
    with pytest.raises(MachineFault, match=r"within 0\.5 s") as caught:
        await SshHost(sshd.options(port=way.port, connect_s=0.5), agent_program).connect()
    assert caught.value.transient


async def test_a_slow_host_is_only_slow(sshd: Sshd, way: Way, agent_program: Path) -> None:
    way.delay_s = 0.03
    async with SshHost(sshd.options(port=way.port), agent_program) as host:
        assert (await host.run(["cat"], input=bytes(1 << 18))).stdout == bytes(1 << 18)


async def test_the_agent_is_copied_once_and_again_when_damaged(
    sshd: Sshd, agent_program: Path
) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        first = host.agent.stat()
    async with SshHost(sshd.options(), agent_program) as host:
        assert host.agent.stat().st_mtime_ns == first.st_mtime_ns
    host.agent.write_bytes(b"damaged")
    async with SshHost(sshd.options(), agent_program) as host:
        assert host.agent.read_bytes() == agent_program.read_bytes()
        assert "tare-agent-" in str(host.agent)


async def test_an_agent_for_another_processor(
    sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    content = bytearray(agent_program.read_bytes())
    content[18:20] = (183 if content[18] != 183 else 62).to_bytes(2, "little")
    (tmp_path / "agent").write_bytes(content)
    with pytest.raises(InputError, match="has the architecture"):
        await SshHost(sshd.options(), tmp_path / "agent").connect()


async def test_options_are_plain(sshd: Sshd) -> None:
    options = replace(sshd.options(), port=22, host="xen.example")
    assert options.name == f"{options.user}@xen.example"
    assert " -p " not in options.login
