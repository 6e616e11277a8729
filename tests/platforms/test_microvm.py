"""Firecracker and Cloud Hypervisor: the requests that they get, and a machine's life."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault
from tare.hosts import LocalHost
from tare.hosts.trace.threads import allowed_cpus
from tare.images.guest_image import GuestImage
from tare.platforms.contract import Context, MachineSpec, Prepared, Shape
from tare.platforms.linux.sockets import Streams
from tare.platforms.microvm.api import Refusal, VmmApi, connect_vsock
from tare.platforms.microvm.cloud_hypervisor import (
    CloudHypervisor,
    CloudHypervisorOptions,
    configuration,
)
from tare.platforms.microvm.firecracker import Firecracker, FirecrackerOptions
from tare.platforms.microvm.machine import Files
from tare.platforms.microvm.platform import MicrovmRequest, version_in
from tare.platforms.network import Link
from tare.platforms.qemu.confinement import Confinement

PLAYED = Path(__file__).with_name("microvm_played.py")
ROOT = os.geteuid() == 0
BOTH = pytest.mark.parametrize(
    ("platform", "options"),
    [
        pytest.param(
            Firecracker(),
            FirecrackerOptions(),
            marks=pytest.mark.skipif(not ROOT, reason="the jailer needs root"),
        ),
        (Firecracker(), FirecrackerOptions(jailed=False)),
        (CloudHypervisor(), CloudHypervisorOptions()),
    ],
)


@pytest.fixture
def programs(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Programs that play both products, first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("firecracker", "jailer", "cloud-hypervisor"):
        words = shlex.join([sys.executable, str(PLAYED), str(agent_program), name])
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    yield folder


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """An image that nothing boots."""
    for name in ("vmlinux", "initramfs"):
        (tmp_path / name).write_bytes(b"played")
        (tmp_path / name).chmod(0o644)
    kernel, initramfs = tmp_path / "vmlinux", tmp_path / "initramfs"
    image = GuestImage(kernel, kernel, initramfs, "digest", "6.1", True, 0.0)
    return Prepared("6.1", "digest", True, 0.0, {"image": image, "notes": ()})


def spec(tmp_path: Path, vcpus: int = 1, cpus: tuple[int, ...] = ()) -> MachineSpec:
    return MachineSpec(
        "tare-t-1-subject", Shape(vcpus, 128 << 20), cpus, tmp_path / "tare-m", False
    )


@BOTH
@pytest.mark.usefixtures("programs")
async def test_a_guest_answers_and_leaves_nothing(
    platform: Any,
    options: Any,
    context: Context,
    prepared: Prepared,
    programs: Path,
    tmp_path: Path,
) -> None:
    machine = await platform.start(context, options, prepared, spec(tmp_path, vcpus=2))
    try:
        hello = await machine.ready(30)
        assert hello.proof
        assert len(await machine.vcpu_threads()) == 2
        cost = await machine.host_cost()
        assert cost["rss_bytes"] > 0 and "vcpu1_run_delay_s" in cost
    finally:
        await machine.stop()
    assert not (tmp_path / "tare-m").exists()
    assert not context.ledger.open_entries()


@BOTH
@pytest.mark.usefixtures("programs")
async def test_each_vcpu_is_pinned_to_its_cpu(
    platform: Any,
    options: Any,
    context: Context,
    prepared: Prepared,
    programs: Path,
    tmp_path: Path,
) -> None:
    online = context.host.topology().online
    cpus = (online[-1], online[0])
    machine = await platform.start(context, options, prepared, spec(tmp_path, 2, cpus))
    try:
        for thread, cpu in zip(await machine.vcpu_threads(), cpus, strict=True):
            assert await allowed_cpus(context.host, thread) == (cpu,)
    finally:
        await machine.stop()


@BOTH
@pytest.mark.usefixtures("programs")
async def test_a_killed_hypervisor_is_reported(
    platform: Any,
    options: Any,
    context: Context,
    prepared: Prepared,
    programs: Path,
    tmp_path: Path,
) -> None:
    machine = await platform.start(context, options, prepared, spec(tmp_path))
    try:
        await machine.ready(30)
        os.kill(machine.pid, 9)
        fault = await asyncio.wait_for(machine.died, 10)
        assert f"{platform.product} was killed by SIGKILL" in fault.message
    finally:
        await machine.stop()
    assert not context.ledger.open_entries()


SAVING = pytest.mark.parametrize(
    ("platform", "options"),
    [
        pytest.param(
            Firecracker(),
            FirecrackerOptions(),
            marks=pytest.mark.skipif(not ROOT, reason="the jailer needs root"),
        ),
        (CloudHypervisor(), CloudHypervisorOptions()),
    ],
)


@SAVING
@pytest.mark.usefixtures("programs")
async def test_guests_are_restored_from_a_saved_one(
    platform: Any, options: Any, context: Context, prepared: Prepared, tmp_path: Path
) -> None:
    assert platform.stated(options).saves
    online = context.host.topology().online
    shape = Shape(2, 128 << 20, 24 << 20)
    first = replace(spec(tmp_path), shape=shape, to_save=True)
    folder = tmp_path / "tare-saved"
    machine = await platform.start(context, options, prepared, first)
    try:
        await machine.ready(30)
        with machine.disk.file.open("r+b") as disk:
            disk.seek(20 << 20)
            disk.write(b"what the guest wrote")
        async with platform.saved(context, options, prepared, machine, folder) as saved:
            assert not (tmp_path / "tare-m").exists()
            assert [entry.kind for entry in context.ledger.open_entries()] == ["directory"]
            for number in range(2):
                cpu = online[-1 - number % len(online)]
                again = MachineSpec(
                    f"tare-t-{number}-subject",
                    *(shape, (cpu,), tmp_path / f"tare-r{number}", False),
                    to_save=True,
                )
                restored = await platform.restore(context, options, prepared, again, saved)
                try:
                    assert (await restored.ready(30)).proof
                    for thread in await restored.vcpu_threads():
                        assert await allowed_cpus(context.host, thread) == (cpu,)
                    content = restored.disk.file.read_bytes()
                    assert content[20 << 20 :].startswith(b"what the guest wrote")
                finally:
                    await restored.stop()
    finally:
        await machine.stop()
    assert not folder.exists()
    assert not context.ledger.open_entries()


@SAVING
@pytest.mark.usefixtures("programs")
async def test_a_state_is_restored_only_as_what_it_was(
    platform: Any, options: Any, context: Context, prepared: Prepared, tmp_path: Path
) -> None:
    first = replace(spec(tmp_path), to_save=True)
    machine = await platform.start(context, options, prepared, first)
    try:
        await machine.ready(30)
        async with platform.saved(context, options, prepared, machine, tmp_path / "tare-s") as made:
            bigger = replace(first, shape=Shape(2, 128 << 20))
            with pytest.raises(MachineFault, match="was saved, not"):
                await platform.restore(context, options, prepared, bigger, made)
            other = replace(prepared, digest="another")
            with pytest.raises(MachineFault, match="with the image digest, not another"):
                await platform.restore(context, options, other, first, made)
            for file in made.folder.iterdir():
                file.unlink()
            with pytest.raises(MachineFault, match=r"jail cannot be filled|state cannot be copied"):
                await platform.restore(context, options, prepared, first, made)
    finally:
        await machine.stop()
    assert not context.ledger.open_entries()


@SAVING
@pytest.mark.usefixtures("programs")
async def test_a_guest_that_is_not_to_be_saved_is_refused(
    platform: Any, options: Any, context: Context, prepared: Prepared, tmp_path: Path
) -> None:
    machine = await platform.start(context, options, prepared, spec(tmp_path))
    try:
        await machine.ready(30)
        with pytest.raises(MachineFault, match="its agent ends with its connection"):
            async with platform.saved(context, options, prepared, machine, tmp_path / "tare-s"):
                pass
        assert not machine.died.done()
    finally:
        await machine.stop()
    assert not context.ledger.open_entries()


def test_firecracker_without_its_jailer_saves_nothing() -> None:
    assert not Firecracker().stated(FirecrackerOptions(jailed=False)).saves


@pytest.mark.usefixtures("programs")
async def test_the_players_refuse_what_the_products_refuse(
    context: Context, prepared: Prepared, tmp_path: Path
) -> None:
    options = CloudHypervisorOptions()
    first = replace(spec(tmp_path), to_save=True)
    cloud: Any = await CloudHypervisor().start(context, options, prepared, first)
    try:
        async with cloud.api() as api:
            url = {"destination_url": f"file://{tmp_path}"}
            with pytest.raises(Refusal, match="Trying to snapshot while VM is running"):
                await api.put("/api/v1/vm.snapshot", url)
            with pytest.raises(Refusal, match="VM is already created"):
                await api.put("/api/v1/vm.restore", {"source_url": f"file://{tmp_path}"})
            await api.put("/api/v1/vm.pause")
            with pytest.raises(Refusal, match="InvalidStateTransition"):
                await api.put("/api/v1/vm.pause")
            with pytest.raises(Refusal, match="not a directory"):
                await api.put("/api/v1/vm.snapshot", {"destination_url": "file:///tare-none"})
    finally:
        await cloud.stop()
    free = FirecrackerOptions(jailed=False)
    fire: Any = await Firecracker().start(context, free, prepared, first)
    try:
        async with fire.api() as api:
            files = {"snapshot_path": str(tmp_path / "s"), "mem_file_path": str(tmp_path / "m")}
            with pytest.raises(Refusal, match="unavailable while running"):
                await api.put("/snapshot/create", files)
            memory = {"backend_type": "File", "backend_path": str(tmp_path / "m")}
            load = {"snapshot_path": str(tmp_path / "s"), "mem_backend": memory}
            with pytest.raises(Refusal, match="not supported after starting"):
                await api.put("/snapshot/load", load)
            with pytest.raises(Refusal, match="unknown field `version`"):
                await api.put("/snapshot/create", {**files, "version": "1.0.0"})
            with pytest.raises(Refusal, match="unknown variant"):
                await api.request("PATCH", "/vm", {"state": "Running"})
            await api.request("PATCH", "/vm", {"state": "Paused"})
            await api.put("/snapshot/create", files)
    finally:
        await fire.stop()


@pytest.mark.usefixtures("programs")
async def test_a_refusal_has_the_products_own_words(
    context: Context, prepared: Prepared, tmp_path: Path
) -> None:
    with pytest.raises(MachineFault, match=r"/machine-config was refused \(400\): The vCPU number"):
        options = FirecrackerOptions(jailed=False)
        await Firecracker().start(context, options, prepared, spec(tmp_path, vcpus=33))
    with pytest.raises(MachineFault, match=r"vm.create was refused \(500\): played: Too many CPUs"):
        free = CloudHypervisorOptions(confined=False)
        await CloudHypervisor().start(context, free, prepared, spec(tmp_path, vcpus=256))
    assert not context.ledger.open_entries()


async def test_missing_programs_are_reported_with_their_source(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("sh", "id", "env"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    platforms: tuple[Any, ...] = (Firecracker(), CloudHypervisor())
    for platform in platforms:
        verdict = await platform.check(context, platform.options())
        assert verdict.reason == f"{platform.name} is not installed"
        assert f"/{platform.name}/releases" in verdict.hint


def test_cloud_hypervisor_is_configured_as_asked(tmp_path: Path) -> None:
    files = Files(
        tmp_path, Path("/k"), Path("/i"), disk=tmp_path / "disk.img", toolbox=Path("/toolbox")
    )
    link = Link("tap", "10.1.2.3", 24, interface="tare-tap")
    guest = MicrovmRequest(spec(tmp_path, 2, (3, 1)), "quiet", link)
    wanted = configuration(CloudHypervisorOptions(disk_direct=True), guest, files, Confinement())
    assert wanted["cpus"] == {
        "boot_vcpus": 2,
        "max_vcpus": 2,
        "affinity": [{"vcpu": 0, "host_cpus": [3]}, {"vcpu": 1, "host_cpus": [1]}],
    }
    assert wanted["memory"] == {"size": 128 << 20}
    assert wanted["payload"] == {"kernel": "/k", "initramfs": "/i", "cmdline": "quiet"}
    assert wanted["disks"] == [
        {"path": str(tmp_path / "disk.img"), "direct": True, "image_type": "Raw"},
        {"path": "/toolbox", "readonly": True, "image_type": "Raw"},
    ]
    assert wanted["net"] == [{"tap": "tare-tap", "mac": "52:54:00:01:02:03"}]
    confined = Confinement(True, 1_900_000_001)
    seen = configuration(CloudHypervisorOptions(), guest, files, confined)
    assert seen["payload"]["kernel"] == "/dev/fd/3"
    assert seen["disks"][1]["path"] == "/dev/fd/5"


@pytest.fixture
async def answering(tmp_path: Path) -> AsyncIterator[tuple[Path, list[bytes]]]:
    """A socket that reads a request and sends what the list holds."""
    answers: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n")
        writer.write(answers.pop(0))
        writer.close()

    path = tmp_path / "api.sock"
    server = await asyncio.start_unix_server(answer, path)
    yield path, answers
    server.close()


async def streams_to(path: Path) -> Streams:
    return await asyncio.open_unix_connection(path)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "no HTTP answer"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP answer: it begins with"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "its length is -1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "its length is 99999999999"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{1}", "the answer is not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{", "no HTTP answer"),
    ],
)
async def test_an_invalid_answer_is_reported(
    answering: tuple[Path, list[bytes]], answer: bytes, words: str
) -> None:
    path, answers = answering
    answers.append(answer)
    api = VmmApi("Firecracker", "tare-1", await streams_to(path))
    with pytest.raises(MachineFault, match=words) as caught:
        await api.request("GET", "/")
    assert not isinstance(caught.value, Refusal)
    api.close()


async def test_an_answer_is_decoded(answering: tuple[Path, list[bytes]]) -> None:
    path, answers = answering
    answers.append(b'HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 13\r\n\r\n{"state":"x"}')
    api = VmmApi("Firecracker", "tare-1", await streams_to(path))
    assert await api.request("GET", "/") == {"state": "x"}
    api.close()


async def test_vsock_is_tried_until_the_guest_listens(
    answering: tuple[Path, list[bytes]], agent_program: Path
) -> None:
    path, answers = answering
    answers += [b"", b"OK 1073741824\n"]
    died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
    reader, writer = await connect_vsock(LocalHost(agent_program), path, 1024, died)
    assert not answers
    assert await reader.read() == b""
    writer.close()
    died.set_result(MachineFault("it ended"))
    with pytest.raises(MachineFault, match="it ended"):
        await connect_vsock(LocalHost(agent_program), path, 1024, died)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("Firecracker v1.12.0\n\n2026 exiting", "1.12.0"),
        ("cloud-hypervisor v54.0.0", "54.0.0"),
        ("Firecracker v1.17.0-dev\n", "1.17.0-dev"),
        ("unknown", "unknown"),
    ],
)
def test_versions_are_read(printed: str, version: str) -> None:
    assert version_in(printed) == version


def test_descriptions_for_reports_name_the_variant() -> None:
    assert Firecracker().describe(FirecrackerOptions()) == "Firecracker, virtio by mmio"
    unjailed = FirecrackerOptions(jailed=False, transport="pci", disk_cache="unsafe")
    assert Firecracker().describe(unjailed) == (
        "Firecracker, virtio by pci, disk unsafe, without its jailer"
    )
    (access,) = Firecracker().host_access(unjailed)
    assert access.option == "jailed"
    (access,) = CloudHypervisor().host_access(CloudHypervisorOptions(confined=False))
    assert access.option == "confined"
