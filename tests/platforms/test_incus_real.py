"""LXD or Incus of Debian itself: by its socket, over HTTPS, and machines that were left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.incus_daemon import POOL, asked, left_in, served, way_of
from platforms.vendor_served import started
from tare.hosts import clean
from tare.identity import identity
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.incus.instance import project_of
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.parcels import container_image
from tare.platforms.incus.platform import PROJECT, Incus

SHAPE = Shape(1, 64 << 20)


@pytest.fixture
def folder() -> Iterator[Path]:
    with served() as made:
        yield made
        assert left_in(made) == []


def over_https(folder: Path, here: Path) -> dict[str, Any]:
    """Have a server answer over HTTPS, and trust a certificate; returns the options."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    pem = identity("ecdsa-p256").pem
    shown = here / "client.pem"
    shown.touch(0o600)
    shown.write_text(pem)
    way = way_of(folder)
    asked(way, "PATCH", "/1.0", {"config": {"core.https_address": f"127.0.0.1:{port}"}})
    begin, end = (f"-----{word} CERTIFICATE-----" for word in ("BEGIN", "END"))
    body = pem[pem.index(begin) + len(begin) : pem.index(end)]
    bare = "".join(body.split())
    asked(way, "POST", "/1.0/certificates", {"type": "client", "name": "t", "certificate": bare})
    settings = {"address": "127.0.0.1", "port": port, "ca": str(folder / "server.crt")}
    return {**settings, "credentials": str(shown)}


def owned(folder: Path) -> tuple[str, str]:
    """Make an image and a volume of the server's owner; returns their paths."""
    way, volumes = way_of(folder), f"/1.0/storage-pools/{POOL}/volumes/custom"
    made = asked(way, "POST", "/1.0/images", container_image(b"an owner's", "x86_64"))
    asked(way, "POST", volumes, {"name": "owners", "content_type": "block", "config": {}})
    return f"/1.0/images/{made['fingerprint']}", f"{volumes}/owners"


@pytest.mark.slow
@pytest.mark.boots
async def test_a_container_over_https_is_made_measured_and_what_is_left_of_one_is_cleaned(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    settings = await asyncio.to_thread(over_https, folder, tmp_path)
    options = IncusOptions.model_validate({"type": "container", "pool": POOL, **settings})
    platform, name = Incus(), f"tare-test-{os.getpid()}-subject"
    last = context.host.topology().online[-1]
    spec = MachineSpec(name, SHAPE, (last,), tmp_path / "w", False)
    machine = await started(platform, context, options, spec)
    try:
        hello = await machine.ready(60)
        assert hello.proof["confinement"]["cpus_allowed"] == str(last)
        work = await machine.agent.run("numeric-sort", {"seconds": 0.2}, deadline_s=30)
        assert work.value["iterations_per_s"] > 0
        assert (await machine.host_cost())["cpu_s"] > 0
    finally:
        await machine.stop()
    assert context.ledger.open_entries() == ()
    # Resources of a killed Tare are removed as the ledger lists them, and only those: not
    # the images and volumes that a project shares with the server's owner.
    way = options.connection()
    kept = await asyncio.to_thread(owned, folder)
    own = project_of(name)
    shared = {"features.images": "false", "features.storage.volumes": "false"}
    for project, owner in ((own, name), (project_of("tare-another"), "somebody")):
        body = {"name": project, "config": {"user.tare": owner, **shared}}
        await asyncio.to_thread(asked, way_of(folder), "POST", "/1.0/projects", body)
    for noted in (name, "tare-another", "not-of-tare"):
        context.ledger.record(PROJECT, **way, name=noted)
    messages = await clean(context.host, context.ledger, platform.undoers)
    assert f"Removed {name} and its project {own}." in messages
    assert any("does not start with tare-" in line for line in messages)
    assert await asyncio.to_thread(asked, way_of(folder), "GET", "/1.0/images") == [kept[0]]
    await asyncio.to_thread(asked, way_of(folder), "DELETE", kept[1])
    path = f"/1.0/projects/{project_of('tare-another')}"
    await asyncio.to_thread(asked, way_of(folder), "DELETE", path)


@pytest.mark.slow
@pytest.mark.boots
async def test_a_weight_becomes_the_kernels_own(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    settings = {"type": "container", "pool": POOL, "socket": str(folder / "unix.socket")}
    options = IncusOptions.model_validate({**settings, "scheduling": {"weight": 50}})
    name = f"tare-test-{os.getpid()}-subject"
    machine = await started(
        Incus(), context, options, MachineSpec(name, SHAPE, (), tmp_path / "w", False)
    )
    try:
        await machine.ready(60)
        path = f"/1.0/instances/{name}/state?project={project_of(name)}"
        state = await asyncio.to_thread(asked, way_of(folder), "GET", path)
        assert weight_of(int(state["pid"])) in (512, 50)
    finally:
        await machine.stop()
    assert context.ledger.open_entries() == ()


def weight_of(process: int) -> int:
    """Return what the kernel weighs a process' control group with, of whichever version."""
    lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    reported = [line.split(":", 2) for line in lines]
    groups = {kind: path for _, kinds, path in reported for kind in kinds.split(",")}
    root = Path("/sys/fs/cgroup")
    if "cpu" in groups:
        return int((root / "cpu" / groups["cpu"].lstrip("/") / "cpu.shares").read_text())
    return int((root / groups[""].lstrip("/") / "cpu.weight").read_text())


@pytest.mark.slow
@pytest.mark.boots
def test_untrusted_client_or_missing_object_is_reported(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    platform = Incus()

    def reason(**more: Any) -> str:
        wanted = IncusOptions.model_validate({"type": "container", **more})
        verdict = asyncio.run(platform.check(context, wanted))
        assert not verdict.usable
        return f"{verdict.reason}; {verdict.hint}"

    here = {"socket": str(folder / "unix.socket")}
    assert "no storage pool fast; it has: test" in reason(**here, pool="fast")
    vm = {**here, "type": "vm", "image": "tare-live", "callback": "192.0.2.1:0"}
    assert "VMs need /dev/kvm" in reason(**vm) or "no image tare-live" in reason(**vm)
    settings = over_https(folder, tmp_path)
    assert "is not trusted" in reason(**{**settings, "ca": None})
    stranger = tmp_path / "stranger.pem"
    stranger.touch(0o600)
    stranger.write_text(identity("ecdsa-p256").pem)
    assert "does not trust Tare's certificate" in reason(
        **{**settings, "credentials": str(stranger)}
    )
