"""What a machine that exists shows, where it is found on its host, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hosts.hosts_sshd import Sshd, keepers, serving
from platforms.test_ssh_conformance import options_for
from tare.errors import InputError, MachineFault
from tare.hosts import Completed, Ledger, LocalHost
from tare.hosts.ssh.host import SshHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context, Shape
from tare.platforms.qemu.guest_process import find_carrier, is_of, vcpus_among
from tare.platforms.ssh.inspection import UNKNOWN_STEAL, Inspection, look, uncontrolled
from tare.platforms.ssh.options import ANY, SshArmOptions
from tare.platforms.ssh.platform import Ssh

KVM: dict[str, Any] = {
    "signatures": ["KVMKVMKVM"],
    "leaves": {"40000001.0": "00000021 0 0 0"},
    "announced": True,
}


def seen(steal_s: float = 0.0, **hypervisor: Any) -> Inspection:
    return Inspection(
        {"hypervisor": hypervisor, "kernel": {"release": "6"}}, True, 1 << 30, steal_s, ""
    )


def test_unreported_steal_is_never_zero() -> None:
    assert seen().steal == UNKNOWN_STEAL
    assert seen(signatures=["KVMKVMKVM"], leaves={"40000001.0": "00000001 0 0 0"}).steal == (
        UNKNOWN_STEAL
    )
    assert seen(**KVM).steal == "reported (nothing since it booted)"
    assert seen(type="xen").steal == "reported (nothing since it booted)"
    vmware: dict[str, Any] = {"signatures": ["VMwareVMware"], "leaves": {"40000001.0": "0 0 0 0"}}
    assert seen(**vmware).steal == seen(**vmware, tells_steal=False).steal == UNKNOWN_STEAL
    assert seen(**vmware, tells_steal=True).steal == "reported (nothing since it booted)"
    assert seen(signatures=["Microsoft Hv"], tells_steal=False).steal == UNKNOWN_STEAL
    assert seen(steal_s=1.5).steal == "reported (1.5 s since it booted)"


def test_features_are_those_of_kvms_own_leaf() -> None:
    assert seen(**KVM).features == ("kvmclock", "kvm-steal-time")
    behind: dict[str, Any] = {
        "signatures": ["Microsoft Hv", "KVMKVMKVM"],
        "leaves": {"40000101.0": "20 0 0 0"},
    }
    assert seen(**behind).features == ("kvm-steal-time",)
    assert seen(signatures=["VMwareVMware"], leaves={"40000001.0": "ffffffff"}).features == ()
    assert seen(signatures=["TCGTCGTCGTCG"]).emulated
    assert not seen(**KVM).emulated


def test_only_shown_properties_are_reported() -> None:
    assert set(seen().shown()) == {"memory", "steal"}
    proof = {
        "machine": {"vendor": "QEMU", "product": "Standard PC", "firmware": None},
        "hypervisor": {"announced": True, "signatures": []},
        "nics": [{"driver": "virtio_net"}, {"driver": None}],
        "disks": [{"driver": "virtio_blk"}, {"driver": "virtio_blk"}],
        "clocksource": {"current": "tsc"},
        "topology": {"online": "0-1"},
    }
    shown = Inspection(proof, False, 1 << 30, 0.0, "").shown()
    assert shown["machine"] == "QEMU, Standard PC"
    assert shown["hypervisor"] == "announced without a name"
    assert shown["drivers"] == "virtio_blk, virtio_net"
    assert shown["CPUs"] == "0-1"


def test_unvaried_boots_are_listed() -> None:
    assert any("boots were not varied" in each for each in uncontrolled(False, True))
    assert not any("boots" in each for each in uncontrolled(True, True))
    assert any("its threads were not seen" in each for each in uncontrolled(True, False))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


class Saying(LocalHost):
    """This computer, but that the agent's proof is what a test says."""

    def __init__(self, proof: bytes) -> None:
        super().__init__()
        self._proof = proof

    async def run(self, argv: Any, **how: Any) -> Completed:
        if argv[-1] == "proof":
            return Completed(0, self._proof, b"")
        return Completed(0, {"id": b"0"}[argv[0]], b"")


@pytest.mark.fuzz
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_invalid_proof_is_a_fault_about_the_proof(answer: bytes) -> None:
    try:
        found = asyncio.run(look(Saying(answer), "agent"))
    except MachineFault as fault:
        assert "proof" in fault.message
    else:
        assert found.memory == json.loads(answer)["memory"]["total"]


def test_a_command_line_is_of_a_machine_by_its_own_words_only() -> None:
    mine, other = str(uuid.uuid4()), str(uuid.uuid4())
    assert is_of(["qemu", "-uuid", mine.upper()], mine)
    assert is_of(["qemu", "-smbios", f"type=1,serial=x,uuid={mine}"], mine)
    assert not is_of(["qemu", "-uuid", other, "-name", mine], mine)
    assert not is_of(["virt-viewer", mine], mine)
    assert not is_of(["qemu", "-smbios", f"type=1,uuid={mine}0"], mine)


@given(st.permutations(range(12)))
def test_vcpus_are_in_the_order_of_their_numbers(order: list[int]) -> None:
    threads = {100 + place: f"CPU {number}/KVM" for place, number in enumerate(order)}
    threads |= {1: "qemu-system-x86", 2: "IO iothread0", 3: "vhost-100", 4: "CPU x/KVM"}
    assert [threads[each] for each in vcpus_among(threads)] == [f"CPU {n}/KVM" for n in range(12)]


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
async def test_a_real_qemu_is_found_by_what_its_firmware_says() -> None:
    mine = str(uuid.uuid4())
    words = ["qemu-system-x86_64", "-S", "-display", "none", "-nodefaults", "-accel", "tcg"]
    words += ["-machine", "q35", "-m", "32", "-smp", "2", "-uuid", mine]
    process = subprocess.Popen([*words, "-name", "guest=x,debug-threads=on"])
    try:
        deadline = time.monotonic() + 60
        found = None
        while found is None or len(found.vcpus) < 2:
            assert time.monotonic() < deadline, found
            found = await find_carrier(LocalHost(), mine)
        assert found.pid == process.pid
        names = [Path(f"/proc/{each}/comm").read_text().strip() for each in found.vcpus]
        assert names == ["CPU 0/TCG", "CPU 1/TCG"]
        assert await find_carrier(LocalHost(), str(uuid.uuid4())) is None
        assert await find_carrier(LocalHost(), "") is None
    finally:
        process.kill()
        process.wait()


def test_an_arm_names_its_machine() -> None:
    with pytest.raises(ValidationError, match="ssh"):
        SshArmOptions.model_validate({})
    with pytest.raises(ValidationError, match="absolute"):
        SshArmOptions.model_validate({"ssh": "vm", "folder": "tmp"})
    with pytest.raises(ValidationError, match="not both"):
        SshArmOptions.model_validate({"ssh": "vm", "password_env": "A", "password_file": "b"})


@pytest.mark.parametrize(
    ("jump", "fault"),
    [
        ("me@bastion.example", ""),
        ("a,b@[fe80::1]:22,ssh://c@d:23", ""),
        ("none", ""),
        ("a b", "must be"),
        ("a:0", "must be"),
        ("-oProxyCommand=x", "must be"),
        ("me:word@bastion", "must be"),
        ("a,,b", "must be"),
    ],
)
def test_a_jump_is_named_as_ssh_has_it(jump: str, fault: str) -> None:
    try:
        options = SshArmOptions.model_validate({"ssh": "vm", "ssh_config": "none", "jump": jump})
    except ValidationError as error:
        assert fault and fault in str(error) and "me@bastion.example" in str(error)
    else:
        assert not fault and len(options.way.jumps) == (
            0 if jump == "none" else jump.count(",") + 1
        )


def test_a_configuration_that_cannot_be_used_is_a_fault_of_its_option(tmp_path: Path) -> None:
    gone = SshArmOptions.model_validate({"ssh": "vm", "ssh_config": str(tmp_path / "none-here")})
    ((option, words),) = gone.faults(True)
    assert option == "ssh_config" and "the SSH configuration" in words and "does not exist" in words
    (tmp_path / "config").write_text("Host vm\n  Port many\n")
    wrong = SshArmOptions.model_validate({"ssh": "vm", "ssh_config": str(tmp_path / "config")})
    ((option, words),) = wrong.faults(True)
    assert option == "ssh_config" and f"{tmp_path / 'config'} line 2" in words
    # A report of another computer's run does not look.
    assert not list(wrong.faults(False))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    with serving(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
        assert ledger.open_entries() == ()


async def test_the_doctor_asks_no_machine(context: Context) -> None:
    verdict = await Ssh().check(context, SshArmOptions.model_validate({"ssh": ANY}))
    assert not verdict.usable
    assert "a study names one" in verdict.reason


async def test_an_unreachable_machine_is_reported_as_unusable(
    context: Context, server: Sshd
) -> None:
    nobody = await Ssh().check(context, options_for(server, user="nobody-of-that-name"))
    assert not nobody.usable
    assert "refuses the login" in nobody.reason
    server.stop()
    gone = await Ssh().check(context, options_for(server))
    assert not gone.usable
    assert not gone.lasting
    assert "cannot be reached" in gone.reason


async def test_a_machine_behind_another_is_checked_and_left(
    context: Context, server: Sshd, tmp_path: Path
) -> None:
    with serving(tmp_path / "jump") as jump:
        config = tmp_path / "ssh_config"
        config.write_text(
            f"Host vm\n  HostName 127.0.0.1\n  ProxyJump bastion\n"
            f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n"
            f"  IdentityFile {jump.user_key}\n  UserKnownHostsFile {jump.known_hosts}\n"
        )
        known = tmp_path / "known"
        known.write_text(server.known_hosts.read_text() + jump.known_hosts.read_text())
        options = options_for(
            server,
            ssh="vm",
            ssh_config=str(config),
            known_hosts=str(known),
            network_way="given",
            folder=str(server.folder),
        )
        verdict = await Ssh().check(context, options)
        assert verdict.usable, verdict.reason
        assert "through" in verdict.reason and "bastion" in verdict.reason
        # What would be measured over the network is the way through the other one.
        assert "reached through another computer" in verdict.capabilities.no_network
        assert not list(server.folder.glob("tare-*"))
        jump.stop()
        gone = await Ssh().check(context, options)
        assert not gone.usable and not gone.lasting
        assert gone.reason.startswith("on the way to root@vm:") and "bastion" in gone.reason


async def test_a_machine_that_is_too_small_is_refused(context: Context, server: Sshd) -> None:
    shape = Shape(1, 1 << 50)
    with pytest.raises(InputError, match="the shape asks for 1 PiB"):
        await Ssh().prepare(context, options_for(server), shape, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="sudo asks others for a password")
@pytest.mark.skipif(not shutil.which("sudo"), reason="sudo is not installed")
async def test_sudo_makes_root_of_all_that_is_started(server: Sshd, agent_program: Path) -> None:
    folder = server.folder / "tare-agent-of-a-test"
    way = replace(server.options(), sudo=True, agent_folder=folder)
    async with SshHost(way, agent_program) as host:
        # What the keeper starts does not see its variables.
        output = await host.run(["sh", "-c", "id -u; tr '\\0' '\\n' </proc/$PPID/environ"])
        uid, *variables = output.stdout.decode().splitlines()
        (command,) = (each for each in variables if each.startswith("SUDO_COMMAND="))
        assert command.startswith(f"SUDO_COMMAND={folder}/tare-agent keep")
        assert uid == "0"
        assert folder.is_dir()
    assert not keepers(server)


async def test_a_machine_without_sudo_says_what_to_do(server: Sshd, agent_program: Path) -> None:
    bare = server.folder / "bin"
    bare.mkdir()
    for name in ("sh", "cat", "uname", "sha256sum", "mkdir", "chmod", "mv", "rm"):
        found = shutil.which(name)
        assert found
        (bare / name).symlink_to(found)
    server.stop()
    text = (server.folder / "config").read_text()
    # The server follows only the first of several such lines.
    assert text.count("SetEnv ") == 1
    (server.folder / "config").write_text(text.replace("SetEnv ", f"SetEnv PATH={bare} "))
    server.start()
    folder = server.folder / "tare-agent-of-a-test"
    way = replace(server.options(), sudo=True, agent_folder=folder)
    with pytest.raises(InputError, match="become root") as caught:
        await SshHost(way, agent_program).connect()
    assert "NOPASSWD" in caught.value.hint
    assert not folder.exists(), "what was put there before the fault is taken back"
