"""A host that is named in the user's SSH configuration, and one behind others."""

from __future__ import annotations

import asyncio
import getpass
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import Sshd, free_port, make_key, serving
from tare.errors import InputError, MachineFault
from tare.hosts.ssh.finding import options_for
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.options import SshOptions, options_of, way_of
from tare.platforms.existing_network import require_direct
from tare.study.reading.hosting import Login

ME = getpass.getuser()
CARRY = (
    "import os,socket,sys,threading;s=socket.create_connection(sys.argv[1:]);"
    "t=lambda:[s.sendall(d) for d in iter(lambda:os.read(0,4096),b'')];"
    "threading.Thread(target=t,daemon=True).start();"
    "[os.write(1,d) for d in iter(lambda:s.recv(4096),b'')]"
).replace("'", '"')
"""Carries a connection from standard input to a host and port, and back."""


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def jump(tmp_path: Path) -> Iterator[Sshd]:
    with serving(tmp_path / "jump") as server:
        yield server


def block(name: str, server: Sshd, *more: str) -> str:
    lines = (
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"User {ME}",
        f"IdentityFile {server.user_key}",
        f"UserKnownHostsFile {server.known_hosts}",
        *more,
    )
    return "\n  ".join((f"Host {name}", *lines)) + "\n"


def found(folder: Path, config: str, name: str = "vm", **settings: Any) -> SshOptions:
    file = folder / "ssh_config"
    file.write_text(config)
    login = Login.model_validate({"ssh_config": str(file), **settings})
    return replace(options_for(name, login, 30.0), lease_s=20)


def kept(options: SshOptions) -> SshOptions:
    """Return a way as a ledger keeps it: as JSON."""
    found_again = options_of(json.loads(json.dumps(way_of(options))))
    assert found_again == options
    return found_again


async def assert_it_is_behind_another(host: SshHost) -> None:
    assert (await host.run(["true"])).ok
    with pytest.raises(MachineFault, match="reached through another computer"):
        require_direct("vm", *host.addresses)


async def test_a_name_is_looked_up(sshd: Sshd, tmp_path: Path, agent_program: Path) -> None:
    options = found(tmp_path, block("vm", sshd))
    assert options.name == f"{ME}@vm:{sshd.port}"
    async with SshHost(options, agent_program) as host:
        assert (await host.run(["true"])).ok
        assert host.addresses[0].there == "127.0.0.1"


async def test_connection_goes_through_the_jump_hosts(
    sshd: Sshd, jump: Sshd, tmp_path: Path, agent_program: Path
) -> None:
    options = found(tmp_path, block("vm", sshd, "ProxyJump bastion") + block("bastion", jump))
    assert options.name == f"{ME}@vm:{sshd.port} through {ME}@bastion:{jump.port}"
    assert f"-J {ME}@bastion:{jump.port}" in options.login
    # It is read when the configuration is another.
    (tmp_path / "ssh_config").unlink()
    async with SshHost(kept(options), agent_program) as host:
        await assert_it_is_behind_another(host)
        # The one before it is cut, and the host comes back through it.
        jump.cut()
        assert (await host.run(["true"])).ok


async def test_connection_goes_through_a_program_that_ends_with_it(
    sshd: Sshd, jump: Sshd, tmp_path: Path, agent_program: Path
) -> None:
    pid = tmp_path / "pid"
    ssh = f"ssh -F {tmp_path}/ssh_config -W %h:%p bastion"
    vm = block("vm", sshd, f"ProxyCommand sh -c 'echo $$ > {pid}; exec {ssh}'")
    options = found(tmp_path, vm + block("bastion", jump))
    async with SshHost(kept(options), agent_program) as host:
        await assert_it_is_behind_another(host)
        first = int(pid.read_text())
        jump.cut()
        assert (await host.run(["true"])).ok
        last = int(pid.read_text())
    assert first != last
    for number in (first, last):
        async with asyncio.timeout(10):
            while Path(f"/proc/{number}").exists():
                await asyncio.sleep(0.05)


async def test_a_program_that_leads_nowhere_is_quoted(sshd: Sshd, tmp_path: Path) -> None:
    agent = tmp_path / "agent"

    async def message_of(program: str, **changes: Any) -> str:
        options = found(tmp_path, block("vm", sshd, f"ProxyCommand {program}"))
        with pytest.raises((MachineFault, InputError)) as raised:
            await SshHost(replace(options, **changes), agent).connect()
        return str(raised.value)

    answer = await message_of("sh -c 'echo no token >&2; echo log in first >&2; exit 3'")
    assert answer.startswith(f"{ME}@vm:{sshd.port} cannot be reached: ")
    assert "; its ProxyCommand reported: no token / log in first" in answer
    assert "no-such-program" in await message_of("no-such-program %h")
    silent = await message_of("sh -c 'echo waiting >&2; exec sleep 60'", connect_s=1.0)
    assert "did not let Tare in within 1 s; its ProxyCommand reported: waiting" in silent
    make_key(tmp_path / "key")
    other = tmp_path / "other"
    other.write_text(f"example {(tmp_path / 'key.pub').read_text()}")
    # The key that is asked for comes by the program as well.
    way = f"{sys.executable} -c '{CARRY}' %h %p"
    assert "; it shows SHA256:" in await message_of(way, known_hosts=other)


def test_a_program_knows_who_logs_in_where_and_a_jump_goes_before_it(tmp_path: Path) -> None:
    config = "Host vm\n  HostName 10.0.0.5\n  ProxyCommand way %r %h %p\n"
    assert found(tmp_path, config).proxy_command == "way root 10.0.0.5 22"
    assert found(tmp_path, config, user="me", port=24).proxy_command == "way me 10.0.0.5 24"
    assert found(tmp_path, config, jump="none").proxy_command is None
    behind = found(tmp_path, config, name="other", jump="vm,last")
    assert (behind.proxy_command, behind.indirect) == (None, True)
    assert [each.proxy_command for each in behind.jumps] == [f"way {ME} 10.0.0.5 22", None]
    direct = found(tmp_path, "Host *\n  ProxyCommand none\n")
    assert (direct.proxy_command, direct.indirect) == (None, False)


async def test_a_study_names_the_jump_itself(
    sshd: Sshd, jump: Sshd, tmp_path: Path, agent_program: Path
) -> None:
    known = tmp_path / "known"
    known.write_text(sshd.known_hosts.read_text() + jump.known_hosts.read_text())
    with (jump.folder / "authorized").open("a") as authorized:
        authorized.write((sshd.folder / "user_key.pub").read_text())
    through = f"{ME}@127.0.0.1:{jump.port}"
    login = Login.model_validate(
        {
            "user": ME,
            "port": sshd.port,
            "known_hosts": str(known),
            "key": str(sshd.user_key),
            "ssh_config": "none",
            "jump": through,
        }
    )
    options = replace(options_for("127.0.0.1", login, 30.0), lease_s=20)
    assert [each.place for each in options.jumps] == [through]
    async with SshHost(options, agent_program) as host:
        assert (await host.run(["true"])).ok


async def test_no_key_is_taken_on_trust(sshd: Sshd, jump: Sshd, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    both = block("vm", sshd, "ProxyJump bastion", "StrictHostKeyChecking no")
    for nothing in ("none", "/dev/null"):
        careless = block("bastion", jump, "StrictHostKeyChecking no").replace(
            str(jump.known_hosts), nothing
        )
        options = found(tmp_path, both + careless, known_hosts=None)
        # Keys that are not remembered there are read from the default place.
        assert options.jumps[0].known_hosts == Path("~/.ssh/known_hosts").expanduser()
        options = replace(
            options, jumps=(replace(options.jumps[0], known_hosts=tmp_path / "nothing"),)
        )
        with pytest.raises(InputError, match="there is no file") as caught:
            await SshHost(options, agent).connect()
        assert f"on the way to {ME}@vm:{sshd.port}: " in caught.value.message
        assert f"the key of {ME}@bastion:{jump.port}" in caught.value.message


async def test_failure_names_the_hop_that_it_is_about(
    sshd: Sshd, jump: Sshd, tmp_path: Path
) -> None:
    agent = tmp_path / "agent"
    vm, bastion = f"{ME}@vm:{sshd.port}", f"{ME}@bastion:{jump.port}"
    config = block("vm", sshd, "ProxyJump bastion") + block("bastion", jump)
    right = found(tmp_path, config)
    make_key(tmp_path / "other")
    wrong = tmp_path / "wrong"
    public = (tmp_path / "other.pub").read_text()

    async def message_of(options: SshOptions, kind: type[InputError | MachineFault]) -> str:
        with pytest.raises(kind) as raised:
            await SshHost(options, agent).connect()
        return str(raised.value)

    def first(**changes: Any) -> SshOptions:
        return replace(right, jumps=(replace(right.jumps[0], **changes),))

    wrong.write_text(f"[127.0.0.1]:{jump.port} {public}")
    answer = await message_of(first(known_hosts=wrong), InputError)
    assert answer.startswith(
        f"on the way to {vm}: the key of {bastion} differs from the one in {wrong}"
    )
    wrong.write_text(f"example {public}")
    answer = await message_of(first(known_hosts=wrong), InputError)
    assert answer.startswith(f"on the way to {vm}: {wrong} has no key for {bastion}")
    answer = await message_of(first(identities=(tmp_path / "other",)), InputError)
    assert answer.startswith(f"on the way to {vm}: {bastion} refuses the login")
    answer = await message_of(first(port=free_port()), MachineFault)
    assert answer.startswith(f"on the way to {vm}: {ME}@bastion:")
    assert "cannot be reached: nothing accepts connections on port" in answer
    # The target's key is seen through the one before it.
    answer = await message_of(replace(right, known_hosts=wrong), InputError)
    assert answer.startswith(f"{wrong} has no key for {vm}; it shows SHA256:")
    answer = await message_of(replace(right, identities=(tmp_path / "other",)), InputError)
    assert answer.startswith(f"{vm} refuses the login")
    answer = await message_of(replace(right, port=(port := free_port())), MachineFault)
    assert answer.startswith(f"{ME}@vm:{port} cannot be reached from {bastion}: ")


async def test_a_jump_host_that_refuses_forwarding_is_reported(sshd: Sshd, tmp_path: Path) -> None:
    with serving(tmp_path / "closed") as closed:
        closed.stop()
        with (closed.folder / "config").open("a") as config:
            config.write("AllowTcpForwarding no\n")
        closed.start()
        options = found(tmp_path, block("vm", sshd, "ProxyJump closed") + block("closed", closed))
        with pytest.raises(
            InputError, match=r"does not allow connections to 127\.0\.0\.1"
        ) as caught:
            await SshHost(options, tmp_path / "agent").connect()
        assert caught.value.message.startswith(f"{ME}@closed:{closed.port} ")
        assert "AllowTcpForwarding" in caught.value.hint


def test_a_studys_settings_override_the_ssh_configuration(tmp_path: Path) -> None:
    config = (
        "Host vm\n  HostName 10.0.0.5\n  User me\n  Port 2222\n  ProxyJump a,b@c:23\n"
        "  HostKeyAlias the-vm\n  IdentityFile ~/one\n  IdentitiesOnly yes\n"
        "Host a\n  ProxyJump z\n  User first\n"
    )
    plain = found(tmp_path, config)
    assert (plain.user, plain.port, plain.reached_at) == ("me", 2222, "10.0.0.5")
    assert [each.place for each in plain.jumps] == [f"{ME}@z", "first@a", "b@c:23"]
    assert plain.name == f"me@vm:2222 through b@c:23 through first@a through {ME}@z"
    assert f"-J {ME}@z,first@a " in plain.jumps[2].login
    assert options_of(json.loads(json.dumps(way_of(plain)))) == plain
    assert (plain.known_as, plain.identities) == ("the-vm", (Path("~/one").expanduser(),))
    options = found(tmp_path, config, user="you", port=24, key="k", known_hosts="kh", jump="none")
    assert (options.user, options.port, options.jumps) == ("you", 24, ())
    assert (options.key, options.identities, options.known_hosts) == (Path("k"), (), Path("kh"))
    other = found(tmp_path, config, name="other", password_env="SECRET", key="k", jump="a")
    assert (other.user, other.port, other.reached_at) == ("root", 22, "other")
    # The password is the target's alone; the key opens what has none of its own.
    assert [(each.key, each.password_env) for each in other.jumps] == [(Path("k"), None)] * 2


def test_unsupported_ssh_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leads from a back to a"):
        found(tmp_path, "Host vm b\n  ProxyJump a\nHost a\n  ProxyJump b\n")
    with pytest.raises(InputError, match=r"ssh_config line 2: Invalid Port"):
        found(tmp_path, "Host vm\n  Port many\n")
    with pytest.raises(InputError, match=r"ssh_config: `ProxyJump` must be \[USER@\]HOST"):
        found(tmp_path, "Host vm\n  ProxyJump a/b\n")
    with pytest.raises(InputError, match="SSH configuration /no/such"):
        options_for("vm", Login.model_validate({"ssh_config": "/no/such"}), 30.0)


def test_only_the_keys_that_are_meant_are_offered(tmp_path: Path) -> None:
    from tare.hosts.ssh.connect import offered

    key = make_key(tmp_path / "key")
    only = SshOptions("vm", "me", tmp_path / "known", identities=(key,), identities_only=True)
    assert offered(only)["agent_identities"] == [f"{key}.pub"]
    assert offered(only)["client_keys"] == [str(key)]
    # A public key alone says which of the agent's is meant.
    named = replace(only, identities=(tmp_path / "key.pub",))
    assert offered(named)["client_keys"] == []
    assert offered(named)["agent_identities"] == [f"{key}.pub"]
    gone = replace(only, identities=(tmp_path / "gone",))
    assert offered(gone)["agent_path"] is None
    assert offered(replace(only, ssh_agent="none"))["agent_path"] is None
    assert "agent_path" not in offered(only)
