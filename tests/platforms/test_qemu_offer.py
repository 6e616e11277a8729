from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from images.images_fakes import FakeHost
from tare.errors import InputError
from tare.hosts import Completed, Ledger, LocalHost
from tare.platforms.contract import Context
from tare.platforms.qemu.command import PROGRAM
from tare.platforms.qemu.offer import Offer, offer_of
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu

# Answers as QEMU 7.2 and 10.0 give them, with fewer processors; events come in between.
GREETING = {
    "QMP": {
        "version": {"qemu": {"micro": 2, "minor": 0, "major": 10}, "package": "Debian 1:10.0.2"},
        "capabilities": ["oob"],
    }
}
ANSWERS: tuple[dict[str, Any], ...] = (
    GREETING,
    {"return": {}, "id": "greeting"},
    {"return": [{"name": "EPYC", "static": False}, {"name": "EPYC-v1"}], "id": "models"},
    {"return": [{"name": "type", "type": "string"}], "id": "tcg"},
    {
        "error": {"class": "DeviceNotFound", "desc": "Class 'kvm-accel' not found"},
        "id": "kvm",
    },
    {"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": False}},
    {"return": {}, "id": "end"},
)


class Scripted:
    """A host with a QEMU that says what it is told to."""

    def __init__(self, answers: Sequence[object] = ANSWERS, version: str = "10.0.2") -> None:
        self.said = "".join(f"{json.dumps(answer)}\n" for answer in answers).encode()
        self.version = version
        self.started = 0
        self.host = FakeHost(self._answer)

    def _answer(self, argv: Sequence[str]) -> Completed:
        if argv[0] == "sh":
            return Completed(0, b"digest -\n", b"")
        if "--version" in argv:
            return Completed(0, f"QEMU emulator version {self.version}".encode(), b"")
        self.started += 1
        return Completed(0, self.said, b"")


async def test_what_a_monitor_answers_is_an_offer(tmp_path: Path) -> None:
    offer = await offer_of(Scripted().host, tmp_path)
    assert offer == Offer(
        version="10.0.2",
        accelerators=frozenset({"tcg"}),
        models=frozenset({"EPYC", "EPYC-v1"}),
    )


async def test_a_qemu_is_asked_once_until_it_is_another(tmp_path: Path) -> None:
    qemu = Scripted()
    first = await offer_of(qemu.host, tmp_path)
    assert await offer_of(qemu.host, tmp_path) == first
    assert qemu.started == 1
    qemu.version = "10.0.3"
    await offer_of(qemu.host, tmp_path)
    assert qemu.started == 2
    for file in (tmp_path / "verdicts").iterdir():
        file.write_text('{"version": "10.0.3"}')
    assert await offer_of(qemu.host, tmp_path) == first
    assert qemu.started == 3


@pytest.mark.parametrize("answers", [(), (GREETING,), ({"QMP": 1},), ("noise",)])
async def test_a_monitor_that_makes_no_sense_is_a_broken_qemu(
    tmp_path: Path, answers: tuple[object, ...]
) -> None:
    with pytest.raises(InputError, match="does not run"):
        await offer_of(Scripted(answers).host, tmp_path)
    assert not list(tmp_path.rglob("*.json"))


async def test_this_qemu_offers_what_its_help_shows(tmp_path: Path) -> None:
    offer = await offer_of(LocalHost(), tmp_path)
    shown = subprocess.run(
        [PROGRAM, "-cpu", "help"], capture_output=True, text=True, check=True
    ).stdout.partition("\n\n")[0]
    # Older ones begin each line with the architecture.
    assert offer.models == {*re.findall(r"^(?:x86 |  )(\S+)", shown, re.MULTILINE)}
    told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert f"version {offer.version} " in told.stdout
    accelerators = subprocess.run(
        [PROGRAM, "-accel", "help"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert offer.accelerators == {"tcg", "kvm"} & {*accelerators}


@pytest.mark.parametrize(
    ("cpu", "reason"),
    [
        ("EPYC", "TCG emulates"),
        ("EPYC-v1,-avx", "TCG emulates"),
        ("Abacus,-avx", "this QEMU knows no CPU model Abacus"),
        ("host", "the CPU model host needs kvm"),
    ],
)
async def test_a_named_processor_is_looked_for_in_this_qemu(
    cpu: str, reason: str, tmp_path: Path, agent_program: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    context = Context(LocalHost(agent_program), ledger, tmp_path, agent_program)
    verdict = await Qemu().check(context, QemuOptions(cpu=cpu))
    assert verdict.reason.startswith(reason)
    assert verdict.usable == reason.startswith("TCG")
    ledger.close()
