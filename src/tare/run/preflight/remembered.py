"""What checks found on hosts, kept so that a plan can be made without asking any of them.

A run never goes by it: it checks for real. What was found on this computer counts until it is
booted again; what was found over SSH, until it is found anew.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from tare.hosts.ledger.ledger import state_dir
from tare.images.cache import KEPT_DAYS, key_of
from tare.platforms.contract import Verdict
from tare.run.lifecycle.versions import tare_version
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.memory_held import held_at_once

if TYPE_CHECKING:
    from tare.run.hosts.contract import PlannedHost
    from tare.study.model.study import Study

AFAR = "afar"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Found:
    """What one check found.

    Args:
        verdict: Its answer.
        at: When, in seconds since the epoch.
    """

    verdict: Verdict
    at: float


@dataclass(frozen=True)
class RememberedHost:
    """What was found on one host.

    Args:
        at: When it was last asked, in seconds since the epoch.
        boot: The boot id of this computer at that time; :data:`AFAR` for another computer.
        cpus: The CPUs on which machines are placed.
        hypervisor: The hypervisor below the host's kernel; empty: none.
        arms: What checks found, by :func:`question`.
    """

    at: float
    boot: str
    cpus: HostCpus
    hypervisor: str = ""
    arms: Mapping[str, Found] = field(default_factory=dict)


_FORM = TypeAdapter(RememberedHost)


def question(host: PlannedHost, study: Study, arm: str, network: bool) -> str:
    """Return what a check of an arm depends on, as the key of its answer.

    Args:
        host: The arm's host.
        study: The study.
        arm: The name of the arm.
        network: Whether ways to a network are looked for.
    """
    asked = study.arms[arm]
    return key_of(
        {
            "tare": tare_version(),
            "platform": asked.platform,
            "options": asked.options.model_dump(mode="json"),
            "kernel": study.kernel_of(arm),
            "release": study.release_of(arm),
            "boot": host.boot_of(
                host.platforms[asked.platform], asked.options, study.release_of(arm)
            ),
            "network": network,
            "memories": held_at_once(study, arm),
        }
    )


def recall(name: str) -> RememberedHost | None:
    """Return what was found on a host; None where nothing is known that still counts.

    Args:
        name: The host's, as :class:`tare.run.hosts.contract.PlannedHost` has it.
    """
    try:
        known = _FORM.validate_json(_file(name).read_bytes())
    except (OSError, ValidationError):
        return None
    # This computer may have another kernel now; whether another has, only asking it would tell.
    return known if known.boot in (AFAR, _boot()) else None


def keep(host: PlannedHost, answers: Mapping[str, Verdict]) -> None:
    """Remember what checks found on a host, beside what was found earlier.

    Args:
        host: The host.
        answers: What was found, by :func:`question`.
    """
    now = time.time()
    # Which of them machines get is the study's choice, and the next study may choose otherwise.
    cpus = replace(host.cpus, measured=(), housekeeping=())
    known = recall(host.name) or RememberedHost(now, AFAR, cpus)
    lately = {key: found for key, found in known.arms.items() if now - found.at < KEPT_DAYS * 86400}
    new = {key: Found(verdict, now) for key, verdict in answers.items()}
    _write(
        _file(host.name),
        replace(
            known,
            at=now,
            boot=_boot() if host.here else AFAR,
            cpus=cpus,
            hypervisor=host.hypervisor,
            arms={**lately, **new},
        ),
    )


def _write(file: Path, known: RememberedHost) -> None:
    # What cannot be kept is found again next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True, mode=0o700)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(_FORM.dump_json(known))
        draft.replace(file)


def _file(name: str) -> Path:
    identity: dict[str, Any] = {"host": name}
    return state_dir() / "found" / f"{key_of(identity)[:32]}.json"


def _boot() -> str:
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""
