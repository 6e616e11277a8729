from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from images.images_fakes import FakeHost
from tare.errors import InputError
from tare.hosts import Completed, Ledger, LocalHost
from tare.platforms.contract import Context
from tare.platforms.qemu.command import PROGRAM, device_types, without_name
from tare.platforms.qemu.offer import DEVICES, Offer, offer_of
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.platforms.qemu.unmet_settings import lacking_here
from tare.programs import QEMU, search_command

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
    {"return": [{"name": "pc-q35-10.0", "alias": "q35"}, {"name": "none"}], "id": "machines"},
    {"return": [{"name": "type", "type": "string"}], "id": "tcg"},
    {"return": [{"name": "type", "type": "string"}], "id": "virtio-blk-pci"},
    {
        "error": {"class": "DeviceNotFound", "desc": "Class 'kvm-accel' not found"},
        "id": "kvm",
    },
    {"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": False}},
    {"return": {}, "id": "end"},
)


class Scripted:
    """A host with a QEMU whose answers are scripted."""

    def __init__(
        self,
        answers: Sequence[object] = ANSWERS,
        version: str = "10.0.2",
        names: Mapping[str, str] = MappingProxyType({PROGRAM: "QEMU emulator version"}),
    ) -> None:
        self.names = names
        self.said = "".join(f"{json.dumps(answer)}\n" for answer in answers).encode()
        self.version = version
        self.started = 0
        self.host = FakeHost(self._answer)

    def _answer(self, argv: Sequence[str]) -> Completed:
        if argv[:3] == search_command(QEMU)[:3]:
            found = [name for name in self.names if name in argv]
            return Completed(int(not found), "\n".join(found).encode(), b"")
        if any("mktemp" in word for word in argv):
            argv = argv[4:]
        if argv[0] == "sh":
            return Completed(0, b"digest -\n", b"")
        if argv[0] not in self.names:
            raise InputError(f"there is no command {argv[0]}")
        if "--version" in argv:
            return Completed(0, f"{self.names[argv[0]]} {self.version}".encode(), b"")
        self.started += 1
        return Completed(0, self.said, b"")


async def test_a_monitors_answers_become_an_offer(tmp_path: Path) -> None:
    offer = await offer_of(Scripted().host, tmp_path)
    assert offer == Offer(
        version="10.0.2",
        accelerators=frozenset({"tcg"}),
        models=frozenset({"EPYC", "EPYC-v1"}),
        machines=frozenset({"pc-q35-10.0", "q35", "none"}),
        devices=frozenset({"virtio-blk-pci"}),
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


DROPPING = """\
#!{python}
# Like QEMU when it quits: it drops what its output does not take at once.
import os, sys
if "--version" in sys.argv:
    sys.exit(print("QEMU emulator version 10.0.2"))
os.set_blocking(1, False)
os.write(1, {answers!r})
"""


async def test_answers_that_fill_a_pipe_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [{"name": f"model-{number:06}"} for number in range(10_000)]
    many = [{**a, "return": models} if a.get("id") == "models" else a for a in ANSWERS]
    answers = "".join(f"{json.dumps(answer)}\n" for answer in many).encode()
    assert len(answers) > 1 << 17
    program = tmp_path / PROGRAM
    program.write_text(DROPPING.format(python=sys.executable, answers=answers))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    offer = await offer_of(LocalHost(), tmp_path / "cache")
    assert offer.models == {model["name"] for model in models}


async def test_this_qemu_offers_what_its_help_shows(tmp_path: Path) -> None:
    offer = await offer_of(LocalHost(), tmp_path)
    shown = subprocess.run(
        [PROGRAM, "-cpu", "help"], capture_output=True, text=True, check=True
    ).stdout.partition("\n\n")[0]
    # Older ones begin each line with the architecture.
    assert offer.models == {*re.findall(r"^(?:x86 |  )(\S+)", shown, re.MULTILINE)}
    output = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert f"version {offer.version} " in output.stdout
    accelerators = subprocess.run(
        [PROGRAM, "-accel", "help"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert offer.accelerators == {"tcg", "kvm"} & {*accelerators}


@pytest.mark.parametrize(
    ("cpu", "reason"),
    [
        ("EPYC", "TCG emulates"),
        ("EPYC-v1,-avx", "TCG emulates"),
        ("Abacus,-avx", "this QEMU does not have the CPU model Abacus"),
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


IS_QEMU = "QEMU emulator version"


@pytest.mark.parametrize("name", ["kvm", "qemu-kvm", "/usr/libexec/qemu-kvm"])
async def test_a_qemu_of_another_name_is_used(tmp_path: Path, name: str) -> None:
    """As Proxmox VE and RHEL have it."""
    offer = await offer_of(Scripted(names={name: IS_QEMU}).host, tmp_path)
    assert (offer.program, offer.version) == (name, "10.0.2")
    # The answer that is kept is that program's.
    assert await offer_of(Scripted(names={name: IS_QEMU}).host, tmp_path) == offer


async def test_another_program_of_the_name_kvm_is_not_taken(tmp_path: Path) -> None:
    host = Scripted(names={"kvm": "a switch for keyboard, video and mouse"}).host
    with pytest.raises(InputError, match="qemu-system-x86_64 is not installed"):
        await offer_of(host, tmp_path)


async def test_the_qemu_with_the_accelerator_is_chosen_from_two(tmp_path: Path) -> None:
    both = Scripted(names={PROGRAM: IS_QEMU, "qemu-kvm": IS_QEMU})
    assert (await offer_of(both.host, tmp_path, "tcg")).program == PROGRAM
    assert (await offer_of(both.host, tmp_path, "kvm")).program == PROGRAM
    (tmp_path / "with").mkdir()

    def answer(argv: Sequence[str]) -> Completed:
        if "qemu-kvm" in argv and "-qmp" in argv:
            both.said = both.said.replace(b'"id": "tcg"', b'"id": "kvm"')
        return both._answer(argv)

    chosen = await offer_of(FakeHost(answer), tmp_path / "with", "kvm")
    assert chosen.program == "qemu-kvm"


def _offer(**changes: Any) -> Offer:
    whole = Offer(
        version="9.1.0",
        accelerators=frozenset({"kvm", "tcg"}),
        models=frozenset({"max", "host"}),
        machines=frozenset({"q35", "pc"}),
        devices=frozenset(DEVICES),
        program="/usr/libexec/qemu-kvm",
    )
    return whole.model_copy(update=changes)


@pytest.mark.parametrize(
    ("offer", "options", "reason"),
    [
        (_offer(accelerators=frozenset({"kvm"})), {"accelerator": "tcg"}, "without tcg"),
        (_offer(machines=frozenset({"q35"})), {"machine": "pc"}, "without machine type pc"),
        (_offer(devices=frozenset(DEVICES) - {"e1000"}), {"devices": "emulated"}, "without e1000"),
        (
            _offer(devices=frozenset(DEVICES) - {"virtio-scsi-pci"}),
            {"disk_bus": "virtio-scsi"},
            "without virtio-scsi-pci",
        ),
    ],
)
async def test_feature_that_qemu_was_built_without_is_named(
    offer: Offer, options: dict[str, str], reason: str
) -> None:
    asked = QemuOptions.model_validate({"accelerator": "tcg", **options})
    found = await lacking_here(Scripted().host, asked, offer)
    assert found is not None
    assert found[0] == f"this QEMU (/usr/libexec/qemu-kvm) was built {reason}"
    assert "/usr/libexec/qemu-kvm" in found[1] or "`accelerator: kvm` works here" in found[1]


@pytest.mark.skipif(not shutil.which(PROGRAM), reason="QEMU is not installed")
async def test_this_qemu_has_every_device_and_machine_that_tare_uses(tmp_path: Path) -> None:
    offer = await offer_of(LocalHost(), tmp_path)
    assert offer.devices == set(DEVICES)
    assert {"q35", "pc", "microvm"} <= offer.machines
    for devices in ("paravirtual", "emulated"):
        for machine in ("q35", "pc", *(["microvm"] if devices == "paravirtual" else [])):
            options = QemuOptions.model_validate({"devices": devices, "machine": machine})
            assert set(device_types(options)) <= set(DEVICES)


@pytest.mark.parametrize("name", ["qemu-system-x86_64", "qemu-kvm", "kvm"])
def test_errors_are_shown_without_the_name_of_any_qemu(name: str) -> None:
    assert without_name(f"{name}: no such device") == "no such device"


@pytest.mark.skipif(not shutil.which(PROGRAM), reason="QEMU is not installed")
async def test_a_real_qemu_under_another_name_passes_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith(("qemu-", "kvm")):
            (programs / tool.name).symlink_to(tool)
    (programs / "kvm").symlink_to(str(shutil.which(PROGRAM)))
    monkeypatch.setenv("PATH", f"{programs}:/usr/sbin")
    context = Context(LocalHost(), Ledger(tmp_path / "ledger"), tmp_path, Path("/agent"))
    verdict = await Qemu().check(context, QemuOptions(accelerator="tcg", cpu="max"))
    assert (verdict.usable, verdict.reason) == (
        True,
        "TCG emulates the processor: behaviour, not hardware speed",
    )
