"""The offer of a host's QEMU: version, accelerators, machine types, devices and processors.

Distributions build QEMU with different parts and under different names, so Tare asks QEMU itself.
It uses the monitor, whose commands are stable across versions. The output of the ``help`` options
is meant for people, and changes. The answer is cached until the program changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tare.errors import InputError, heard
from tare.hosts import Completed, Host
from tare.hosts.programs import find_program, install_command_for
from tare.images.cache import key_of
from tare.platforms.qemu.command import PROGRAM
from tare.platforms.qemu.nic import MODELS
from tare.programs import QEMU

_ACCELERATORS = ("tcg", "kvm")
_MODELS = "models"
_MACHINES = "machines"
DEVICES = (
    *(card for card in MODELS.values() if card != "virtio-net-pci"),
    *(
        f"virtio-{kind}-{bus}"
        for kind in ("net", "blk", "scsi", "serial")
        for bus in ("pci", "device")
    ),
    *("virtserialport", "isa-serial", "scsi-hd", "nvme", "ich9-ahci", "ide-hd"),
)
"""The devices that Tare gives to guests; see :func:`tare.platforms.qemu.command.device_types`."""
_GREETING = "QEMU emulator version"
_TO_FILE = """\
answers=$(mktemp) || exec "$@"
"$@" >"$answers"
status=$?
cat "$answers"
rm -f "$answers"
exit $status
"""
"""Runs a command whose output goes through a file. QEMU drops what does not fit into a pipe when it
quits: 24 of 85 kB were lost if they were read 3 s late (7.2)."""
_QUIET = ("-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio")
_ANSWER_S = 120.0
"""Seconds to wait: on a busy emulated host, QEMU itself takes many seconds to start."""


class Offer(BaseModel):
    """The offer of one QEMU.

    Args:
        version: Its version, such as ``7.2.22``.
        accelerators: Those of ``tcg`` and ``kvm`` that it was built with.
        models: The names of processor models for ``-cpu``.
        machines: The names of machine types for ``-machine``.
        devices: Those of :data:`DEVICES` that it was built with.
        program: The program's name on its host.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    accelerators: frozenset[str]
    models: frozenset[str]
    machines: frozenset[str]
    devices: frozenset[str]
    program: str = PROGRAM


async def offer_of(host: Host, cache: Path, accelerator: str | None = None) -> Offer:
    """Return the offer of the host's QEMU; this starts QEMU once, without a machine.

    Args:
        host: The host that has QEMU.
        cache: The directory of the cache.
        accelerator: If the host has several QEMUs, take the first with this accelerator.

    Raises:
        InputError: There is no QEMU, or it does not run.
        MachineFault: It did not answer in time, or the host cannot be reached.
    """
    try:
        usual = await _offer_of(host, cache, PROGRAM)
    except InputError as error:
        if (other := await _other_offer(host, cache)) is None:
            raise error
        return other
    if accelerator is None or accelerator in usual.accelerators:
        return usual
    other = await _other_offer(host, cache)
    return other if other is not None and accelerator in other.accelerators else usual


async def _other_offer(host: Host, cache: Path) -> Offer | None:
    """Return the offer of a QEMU with another name, such as those of Proxmox and RHEL."""
    try:
        program = await find_program(host, QEMU, QEMU.names[1:])
        return None if program is None else await _offer_of(host, cache, program)
    except InputError:
        return None


async def _offer_of(host: Host, cache: Path, program: str) -> Offer:
    key = await _identity(host, program)
    file = cache / "verdicts" / f"qemu-{key_of(key)[:32]}.json"
    with contextlib.suppress(OSError, ValueError):
        return Offer.model_validate_json(file.read_bytes())
    offer = await _asked(host, program)
    # If the answer cannot be stored, QEMU is asked again next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(offer.model_dump_json())
    return offer


async def _identity(host: Host, program: str) -> dict[str, str]:
    """Return facts that distinguish one QEMU from another, even behind the same wrapper.

    Any change of the program gives its file another time of change (ctime), which no program can
    set. To read it takes 3 ms. A digest of the file would take 70 ms, twice for each arm.
    """
    # The time of change with nanoseconds; BusyBox shows whole seconds.
    script = f'stat -L -c "%d %i %s %z" "$(command -v {shlex.quote(program)})"'
    stated = asyncio.ensure_future(host.run(["sh", "-c", script], timeout_s=_ANSWER_S))
    try:
        shown = await host.run([program, "--version"], timeout_s=_ANSWER_S)
    except InputError as error:
        hint = await install_command_for(host, QEMU)
        raise InputError(f"{PROGRAM} is not installed", hint) from error
    finally:
        # Wait even after an error, so that no command is left running.
        file = await stated
    version = shown.stdout.decode(errors="replace")
    # Other programs are also named kvm.
    if not shown.ok or (program != PROGRAM and not version.startswith(_GREETING)):
        raise await _broken(host, program, shown)
    named = {} if program == PROGRAM else {"program": program}
    return {"version": version, "file": file.stdout.decode(), **named}


async def _asked(host: Host, program: str) -> Offer:
    # A list of all accelerators would make QEMU load every module, even those of another build.
    orders: dict[str, dict[str, Any]] = {
        "greeting": {"execute": "qmp_capabilities"},
        _MODELS: {"execute": "query-cpu-definitions"},
        _MACHINES: {"execute": "query-machines"},
        **{name: _is_type(f"{name}-accel") for name in _ACCELERATORS},
        **{name: _is_type(name) for name in DEVICES},
        "end": {"execute": "quit"},
    }
    lines = (json.dumps({**order, "id": name}) + "\n" for name, order in orders.items())
    argv = [program, "-machine", "none", *_QUIET]
    answered = await host.run(
        ["sh", "-c", _TO_FILE, "sh", *argv], input="".join(lines).encode(), timeout_s=_ANSWER_S
    )
    try:
        return _parse_answers(answered.stdout).model_copy(update={"program": program})
    except (ValueError, KeyError, TypeError) as error:
        raise await _broken(host, program, answered) from error


def _is_type(name: str) -> dict[str, Any]:
    return {"execute": "qom-list-properties", "arguments": {"typename": name}}


def _parse_answers(text: bytes) -> Offer:
    """Parse a monitor's answers, one JSON object per line (QEMU's docs/interop/qmp-spec)."""
    objects: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    greeting, *answers = objects
    returned = {each.get("id"): each["return"] for each in answers if "return" in each}
    return Offer(
        version="{major}.{minor}.{micro}".format_map(greeting["QMP"]["version"]["qemu"]),
        accelerators=frozenset(name for name in _ACCELERATORS if name in returned),
        models=frozenset(model["name"] for model in returned[_MODELS]),
        machines=frozenset(
            name
            for machine in returned[_MACHINES]
            for name in (machine["name"], machine.get("alias"))
            if name is not None
        ),
        devices=frozenset(name for name in DEVICES if name in returned),
    )


async def _broken(host: Host, program: str, completed: Completed) -> InputError:
    install = await install_command_for(host, QEMU)
    todo = f"try it: {shlex.join([program, '--version'])}, or install it: {install}"
    words = completed.words() or f"status {completed.returncode}"
    return InputError(f"{program} does not run", heard(todo, "QEMU", words))
