"""`tare certify` of vendors' hypervisors, against their simulators: a file without secrets."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from platforms.test_vendor_runs import PRODUCTS
from platforms.vendor_guests import Guests
from platforms.vsphere_simulated import PASSWORD, USER, booting, simulator
from run.run_driving import TARE
from tare.platforms.certificates.model import Certificate, contradictions, read_certificate
from tare.run.lifecycle.session import agent_path

LIMIT_S = 900.0
DISK_CASE, DISK_WORK = "test_disk", "filebench"


@dataclass(frozen=True)
class There:
    """A server to certify on.

    Args:
        options: The platform's options.
        who: The environment variables with Tare's credentials.
        secrets: Returns all that is in no certificate, once it was used.
        left: Returns Tare's leftovers there.
    """

    options: Mapping[str, object]
    who: Mapping[str, str]
    secrets: Callable[[], set[str]]
    left: Callable[[], object]


@asynccontextmanager
async def product(kind: str, folder: Path) -> AsyncIterator[There]:
    """Run a server that stands for one, with local agents for its guests."""
    about = PRODUCTS[kind]
    pytest.importorskip(about.module)
    server = about.server(folder)
    guests = Guests(agent_path(), server.powered_off)
    server.plug, server.unplug = guests.plug, guests.unplug
    word = about.password(server)
    way = {"address": "127.0.0.1", "port": server.port, "ca": server.ca, "image": about.image}
    prefix = f"TARE_{kind.upper()}"
    who = {f"{prefix}_USER": about.user, f"{prefix}_PASSWORD": word}
    server.start()
    try:
        yield There(
            way,
            who,
            lambda: {word, *guests.keys, *about.secrets(server)},
            lambda: about.left(server),
        )
    finally:
        await guests.close()
        server.stop()


@asynccontextmanager
async def vsphere(kind: str, folder: Path) -> AsyncIterator[There]:
    """Run govmomi's simulator of vCenter, with local agents for its guests."""
    with simulator() as there:
        options = there.options().model_dump(mode="json", exclude_defaults=True)
        way = {name.replace("_", "-"): value for name, value in options.items()}
        # By the environment, as for the others.
        del way["credentials"]
        who = {"TARE_VSPHERE_USER": USER, "TARE_VSPHERE_PASSWORD": PASSWORD}
        async with booting(there, agent_path()) as firmware:
            yield There(way, who, lambda: {PASSWORD, *firmware.keys}, there.left)


SERVERS: Mapping[str, Callable[[str, Path], AbstractAsyncContextManager[There]]] = {
    **dict.fromkeys(PRODUCTS, product),
    "vsphere": vsphere,
}
RIGHTS = {
    "proxmox": ("root of the node, by password: every right",),
    "xenserver": ("the role vm-power-admin",),
    "ovirt": ("the role TareMeasures on a cluster",),
    "hyperv": ("member of Hyper-V Administrators", "member of Remote Management Users"),
}


async def tare(*words: object, **variables: str) -> tuple[int, str]:
    """Run the command; return its status and all its output."""
    process = await asyncio.create_subprocess_exec(
        str(TARE),
        *map(str, words),
        env={**os.environ, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    return process.returncode or 0, output.decode()


def failed_cells(about: Certificate) -> list[str]:
    """Return the cells of a certificate's study that failed."""
    return [
        str(each["cell"])
        for each in about.events
        if each["type"] == "cell_finished" and each["status"] == "failed"
    ]


def cases_that(about: Certificate, outcome: str) -> Sequence[str]:
    """Return the names of the cases with an outcome."""
    return [case.name for case in about.cases if case.outcome == outcome]


@pytest.mark.acceptance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["proxmox", "xenserver", "vsphere", "ovirt", "hyperv"])
async def test_a_makers_hypervisor_is_certified_and_its_file_holds_no_secret(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "certificate.json"
    planted = {"planted-and-never-told"}
    async with SERVERS[kind](kind, tmp_path) as there:
        given = [f"--set={key}={value}" for key, value in there.options.items()]
        variables = {
            **there.who,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "TARE_TEST_PASSWORD": next(iter(planted)),
        }
        begin = ("certify", kind, *given, "--minutes", "0.1", "--yes", "--out", file)
        status, output = await tare(*begin, **variables)
        assert file.exists(), output
        # A name that is an ordinary word, such as `tare`, identifies nobody.
        accounts = {value for key, value in there.who.items() if key.endswith("_USER")}
        planted |= there.secrets() | (accounts - {"tare"})
        assert not there.left()
    about = read_certificate(file)
    assert contradictions(about) == ()
    # A local agent plays the guest, and sees no disk of the server's: of nothing else it fails.
    has_disk = bool(about.found["disk"])
    assert cases_that(about, "failed") == ([DISK_CASE] if has_disk else []), output
    assert all(DISK_WORK in cell for cell in failed_cells(about))
    assert bool(failed_cells(about)) == has_disk
    assert (status, about.results.passes) == ((1, False) if has_disk else (0, True)), output
    assert set(about.results.cells) == {"subject", "subject-again"}
    assert not about.results.undeclared and not about.leftovers
    assert {"test_creates", "test_measures", "test_stops", "test_is_cleaned"} <= set(
        cases_that(about, "passed")
    )
    # Pinned to what the server has, whatever this computer has.
    pins = "passed" if about.found["pinning"] else "skipped"
    assert "test_pins" in cases_that(about, pins)
    # Whose rights: those of the account there, and not of the user who ran the command here.
    assert about.rights == RIGHTS.get(kind, about.rights)
    assert "root" not in about.rights and about.build and about.shown
    text = file.read_text()
    assert len(planted) > 4
    assert not [word for word in planted if json.dumps(word)[1:-1] in text]
    assert not [word for word in planted - accounts if word in output]
    # Nor who asked whom, which the command says here.
    assert "127.0.0.1" not in text and "127.0.0.1" in output
    assert (await tare("certify", "--check", file))[0] == 0
