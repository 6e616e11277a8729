"""``bare-live``: a machine that its owner boots, known by its medium's key from boot to boot."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from images.live_guest import GATEWAY, LiveMachine
from run.run_driving import of_type, tare
from run.run_ports import ports_held
from tare.errors import InputError, MachineFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.images.live.image import make_live_image
from tare.platforms.contract import Context, MachineSpec, Prepared, Shape
from tare.platforms.live.medium import certificate_file, make_medium, read_medium
from tare.platforms.live.options import ANY, LiveOptions
from tare.platforms.live.platform import BareLive, dials
from tare.platforms.vendors.options import CallbackAddress
from tare.testing.simulated_guest import LocalGuest

BOOTED = Prepared(kernel="", digest="", cached=True, took_s=0.0)
SHAPE = Shape(vcpus=1, memory=1 << 30)


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    ledger = Ledger(tmp_path / "ledger")
    yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
    assert not ledger.open_entries()
    ledger.close()


def free_place() -> CallbackAddress:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return CallbackAddress("127.0.0.1", found.getsockname()[1])


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    make_medium(tmp_path / "cfg.img", free_place())
    return tmp_path / "cfg.img"


def spec(folder: Path, number: int) -> MachineSpec:
    return MachineSpec(f"tare-live-{number}", SHAPE, (), folder / f"tare-live-{number}", False)


@contextlib.asynccontextmanager
async def played(agent: Path, medium: Path) -> AsyncIterator[list[int]]:
    """Play a machine that restarts whenever its host is done with it; counts its boots."""
    boots: list[int] = []

    async def play() -> None:
        while True:
            guest = LocalGuest(agent)
            try:
                await guest.boot([medium.read_bytes()])
                boots.append(len(boots) + 1)
                await guest.wait()
            finally:
                await guest.end()

    playing = asyncio.ensure_future(play())
    try:
        yield boots
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


async def test_each_batch_is_a_boot_of_the_one_machine(
    context: Context, agent_program: Path, medium: Path, tmp_path: Path
) -> None:
    live, options = BareLive(), LiveOptions(medium=str(medium), virtual=True)
    verdict = await live.check(context, options)
    assert verdict.usable, verdict.reason
    assert str(read_medium(medium).callback) in verdict.reason
    assert verdict.emulated
    async with played(agent_program, medium) as boots:
        for number in (1, 2):
            machine = await live.start(context, options, BOOTED, spec(tmp_path, number))
            try:
                hello = await machine.ready(60)
                assert hello.proof["kernel"]["release"]
                assert len(machine.inner_cpus) == SHAPE.vcpus
                assert len(boots) >= number
            finally:
                await machine.stop()
            assert not (tmp_path / f"tare-live-{number}").exists()


STUDY = """
study: live
baseline: bare
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 512MiB}}
arms:
  bare: {{platform: bare}}
  live: {{platform: bare-live, medium: {medium}, virtual: true, patience: 2min, network-way: given}}
workloads: {{tick: {{duration: 100ms}}, request-response: {{duration: 100ms}}}}
"""


async def test_a_run_measures_it_in_each_block(
    agent_program: Path, medium: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "s.yaml", tmp_path / "run"
    study.write_text(STUDY.format(medium=medium))
    async with played(agent_program, medium), ports_held():
        outcome = await asyncio.to_thread(tare, "run", study, "--out", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    found = [event["cell"] for event in of_type(folder, "cell_finished")]
    assert sum("/live/" in cell for cell in found) == 4
    assert {event["status"] for event in of_type(folder, "cell_finished")} == {"ok"}
    ways = [each["placement"]["network"]["way"] for each in of_type(folder, "machine_ready")]
    assert ways.count("given") == 2
    assert not of_type(folder, "skipped")
    secret = read_medium(medium).key.reveal()
    written = [file for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in written if secret.encode() in file.read_bytes()]


async def test_a_virtual_machine_is_refused_as_bare_unless_requested(
    context: Context, agent_program: Path, medium: Path, tmp_path: Path
) -> None:
    proof = (await context.host.run([str(agent_program), "proof"], timeout_s=30)).stdout
    if b'"signatures":[]' in proof.replace(b" ", b""):
        pytest.skip("this computer is a bare machine")
    live, options = BareLive(), LiveOptions(medium=str(medium))
    assert not live.stated(options).emulated
    async with played(agent_program, medium):
        machine = await live.start(context, options, BOOTED, spec(tmp_path, 1))
        try:
            with pytest.raises(
                MachineFault, match="is not a bare machine: it runs on a hypervisor"
            ):
                await machine.ready(60)
        finally:
            await machine.stop()


async def test_a_machine_that_is_never_booted_is_given_up_after_a_wait(
    context: Context, medium: Path, tmp_path: Path
) -> None:
    options = LiveOptions(medium=str(medium), patience=0.2)
    machine = await BareLive().start(context, options, BOOTED, spec(tmp_path, 1))
    with pytest.raises(MachineFault, match=r"did not answer within 0\.3 s"):
        await machine.ready(0.3)
    await machine.stop()


async def test_dialling_machine_is_answered_and_keeps_dialling(
    context: Context, medium: Path, agent_program: Path, tmp_path: Path
) -> None:
    live, options = BareLive(), LiveOptions(medium=str(medium), virtual=True)
    assert live.stated(options).boots_each
    async with played(agent_program, medium) as boots:
        for _ in range(2):
            assert not (await live.presence(context, options)).absent
        machine = await live.start(context, options, BOOTED, spec(tmp_path, 1))
        await machine.ready(60)
        # Nobody was let in before: this is still its first boot.
        assert boots in ([], [1])
        await machine.stop()


async def test_where_no_machine_dials_none_is_there(medium: Path, context: Context) -> None:
    place = read_medium(medium).callback
    assert not await dials(place, 0.05)
    with socket.create_server((place.address, place.port)):
        found = await BareLive().presence(context, LiveOptions(medium=str(medium)))
    assert "the machine cannot dial back" in found.absent


async def test_faulty_medium_is_reported_before_anything_starts(
    context: Context, medium: Path, tmp_path: Path
) -> None:
    async def refused(file: Path | str, **more: str) -> str:
        options = LiveOptions.model_validate({"medium": str(file), **more})
        verdict = await BareLive().check(context, options)
        assert not verdict.usable
        return f"{verdict.reason}; {verdict.hint}"

    assert "a study names its medium" in await refused(ANY)
    assert "tare image medium" in await refused(tmp_path / "none")
    assert "cannot dial back" in await refused(medium, listen="203.0.113.1:1")
    make_medium(tmp_path / "other.img", free_place())
    certificate_file(tmp_path / "other.img").replace(certificate_file(medium))
    assert "belongs to another medium" in await refused(medium)
    medium.write_bytes(bytes(1 << 20))
    assert "is not the image of a medium" in await refused(medium)
    medium.chmod(0o644)
    assert f"chmod 600 {medium}" in await refused(medium)


def test_a_medium_is_its_owners_alone_and_the_private_key_is_not_on_it(medium: Path) -> None:
    certificate = certificate_file(medium)
    assert {file.stat().st_mode & 0o777 for file in (medium, certificate)} == {0o600}
    assert b"PRIVATE KEY" not in medium.read_bytes()
    assert read_medium(medium).key.reveal().encode() not in certificate.read_bytes()
    assert read_medium(medium).key.reveal().encode() in medium.read_bytes()
    with pytest.raises(InputError, match="cannot be written"):
        make_medium(medium.parent / "none" / "x", CallbackAddress("127.0.0.1", 1))


def test_the_command_makes_a_medium_and_requires_an_address_with_port(tmp_path: Path) -> None:
    made = tmp_path / "stick.img"
    asked = tare("image", "medium", "--callback", "192.0.2.9:7710", "--out", made)
    assert asked.returncode == 0, asked.stderr
    assert str(read_medium(made).callback) == "192.0.2.9:7710"
    for wrong, says in (("192.0.2.9:0", "must include the port"), ("here:1", "must be an IPv4")):
        asked = tare("image", "medium", "--callback", wrong, "--out", made)
        assert asked.returncode == 2
        assert f"--callback {wrong}: " in asked.stderr and says in asked.stderr


@pytest.mark.slow
@pytest.mark.guest
@pytest.mark.acceptance
@pytest.mark.timeout(1800)
async def test_a_computer_that_boots_the_live_image_is_measured_boot_by_boot(
    context: Context, agent_program: Path, tmp_path: Path
) -> None:
    place = free_place()
    medium, image = tmp_path / "cfg.img", tmp_path / "live.iso"
    make_medium(medium, CallbackAddress(GATEWAY, place.port))
    await make_live_image(
        context.host,
        image,
        kernel="generic",
        toolbox=None,
        words=(),
        agent=agent_program,
        cache=context.cache,
        say=print,
    )
    argv = LiveMachine(image, "bios").argv(medium, tmp_path)
    computer = await asyncio.create_subprocess_exec(
        *argv, "-serial", f"file:{tmp_path / 'console'}", stdin=asyncio.subprocess.DEVNULL
    )
    live = BareLive()
    options = LiveOptions(medium=str(medium), listen=str(place), virtual=True)
    try:
        for number in (1, 2):
            machine = await live.start(context, options, BOOTED, spec(tmp_path, number))
            try:
                hello = await machine.ready(60)
                assert hello.proof["live"]["network"]["by"] == "DHCP"
            finally:
                await machine.stop()
        # The one computer has restarted for the second; no agent of its first boot could answer.
        assert computer.returncode is None
    finally:
        if computer.returncode is None:
            computer.kill()
        await computer.wait()
