"""What a host's QEMU offers: its version, its accelerators and the processors it knows.

QEMU is asked by its monitor, whose words hold from version to version; what its ``help`` options
print is for people, and changes. The answer is remembered for as long as the program is the same.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tare.errors import InputError, heard
from tare.hosts import Completed, Host
from tare.images.cache import key_of
from tare.platforms.qemu.command import PROGRAM

INSTALL = "apt-get install -y qemu-system-x86"

_ACCELERATORS = ("tcg", "kvm")
_MODELS = "models"
_QUIET = ("-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio")
_ANSWER_S = 120.0
"""Where QEMU itself runs on emulated CPUs that are all busy, it takes many seconds to be there."""


class Offer(BaseModel):
    """What one QEMU offers.

    Args:
        version: Its version, such as ``7.2.22``.
        accelerators: Those of ``tcg`` and ``kvm`` that it was built with.
        models: The names of processor models that ``-cpu`` takes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    accelerators: frozenset[str]
    models: frozenset[str]


async def offer_of(host: Host, cache: Path) -> Offer:
    """Return what the host's QEMU offers; it is started for that once, without any machine.

    Args:
        host: Where QEMU is.
        cache: Where answers are kept.

    Raises:
        InputError: There is no QEMU, or it does not run.
        MachineFault: It did not answer in time; or the host cannot be reached.
    """
    file = cache / "verdicts" / f"qemu-{key_of(await _program(host))[:32]}.json"
    with contextlib.suppress(OSError, ValueError):
        return Offer.model_validate_json(file.read_bytes())
    offer = await _asked(host)
    # An answer that cannot be kept is asked for again next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(offer.model_dump_json())
    return offer


async def _program(host: Host) -> dict[str, str]:
    """Return what tells one QEMU from another; a wrapper stays when the QEMU in it changes."""
    try:
        told = await host.run([PROGRAM, "--version"], timeout_s=_ANSWER_S)
    except InputError as error:
        raise InputError(f"{PROGRAM} is not installed", INSTALL) from error
    if not told.ok:
        raise _broken(told)
    script = f'sha256sum < "$(command -v {PROGRAM})"'
    digest = await host.run(["sh", "-c", script], timeout_s=_ANSWER_S)
    return {"version": told.stdout.decode(errors="replace"), "digest": digest.stdout.decode()}


async def _asked(host: Host) -> Offer:
    # A list of all accelerators would make QEMU load every module, those of another build too.
    orders: dict[str, dict[str, Any]] = {
        "greeting": {"execute": "qmp_capabilities"},
        _MODELS: {"execute": "query-cpu-definitions"},
        **{
            name: {"execute": "qom-list-properties", "arguments": {"typename": f"{name}-accel"}}
            for name in _ACCELERATORS
        },
        "end": {"execute": "quit"},
    }
    lines = (json.dumps({**order, "id": name}) + "\n" for name, order in orders.items())
    argv = [PROGRAM, "-machine", "none", *_QUIET]
    told = await host.run(argv, input="".join(lines).encode(), timeout_s=_ANSWER_S)
    try:
        return _understood(told.stdout)
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(told) from error


def _understood(said: bytes) -> Offer:
    """Return the offer in what a monitor said, one object a line (QEMU's docs/interop/qmp-spec)."""
    objects: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    greeting, *answers = objects
    returned = {each.get("id"): each["return"] for each in answers if "return" in each}
    return Offer(
        version="{major}.{minor}.{micro}".format_map(greeting["QMP"]["version"]["qemu"]),
        accelerators=frozenset(name for name in _ACCELERATORS if name in returned),
        models=frozenset(model["name"] for model in returned[_MODELS]),
    )


def _broken(told: Completed) -> InputError:
    todo = f"try it: {shlex.join([PROGRAM, '--version'])}, or install it: {INSTALL}"
    words = told.words() or f"status {told.returncode}"
    return InputError(f"{PROGRAM} does not run", heard(todo, "QEMU", words))
