"""Results of earlier checks of hosts, kept so that a plan needs no contact with them.

A run never uses them: it checks each host. Results on this computer are valid until it is booted
again; results over SSH, until the next check.
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
class CheckResult:
    """The result of one check.

    Args:
        verdict: The result.
        at: The time of the check, in seconds since the epoch.
    """

    verdict: Verdict
    at: float


@dataclass(frozen=True)
class RememberedHost:
    """The results of all checks of one host.

    Args:
        at: The time of the last check, in seconds since the epoch.
        boot: The boot id of this computer at that time; :data:`AFAR` for another computer.
        cpus: The CPUs on which machines are placed.
        hypervisor: The hypervisor below the host's kernel; empty: none.
        arms: The results by :func:`question`.
    """

    at: float
    boot: str
    cpus: HostCpus
    hypervisor: str = ""
    arms: Mapping[str, CheckResult] = field(default_factory=dict)


_FORM = TypeAdapter(RememberedHost)


def question(host: PlannedHost, study: Study, arm: str, network: bool) -> str:
    """Return the key of a check of an arm: a digest of everything that its result depends on.

    Args:
        host: The arm's host.
        study: The study.
        arm: The name of the arm.
        network: Whether the check includes networks.
    """
    spec = study.arms[arm]
    return key_of(
        {
            "tare": tare_version(),
            "platform": spec.platform,
            "options": spec.options.model_dump(mode="json"),
            "kernel": study.kernel_of(arm),
            "release": study.release_of(arm),
            "boot": host.boot_of(
                host.platforms[spec.platform], spec.options, study.release_of(arm)
            ),
            "network": network,
            "memories": held_at_once(study, arm),
        }
    )


def recall(name: str) -> RememberedHost | None:
    """Return the results on a host; None if there are none that are still valid.

    Args:
        name: The host's name in :class:`tare.run.hosts.contract.PlannedHost`.
    """
    try:
        known = _FORM.validate_json(_file(name).read_bytes())
    except (OSError, ValidationError):
        return None
    # A reboot of this computer is visible here; one of a remote host is not.
    return known if known.boot in (AFAR, _boot()) else None


def keep(host: PlannedHost, answers: Mapping[str, Verdict]) -> None:
    """Store results of checks of a host, in addition to earlier ones.

    Args:
        host: The host.
        answers: The results by :func:`question`.
    """
    now = time.time()
    # The CPUs for machines are the study's choice, which differs between studies.
    cpus = replace(host.cpus, measured=(), housekeeping=())
    known = recall(host.name) or RememberedHost(now, AFAR, cpus)
    lately = {key: found for key, found in known.arms.items() if now - found.at < KEPT_DAYS * 86400}
    new = {key: CheckResult(verdict, now) for key, verdict in answers.items()}
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
    # If it cannot be written, the next plan lacks the results.
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
