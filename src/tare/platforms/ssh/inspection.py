"""Inspect an existing machine: facts about it and its hypervisor, and limits of Tare's control."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.units import kernel_units
from tare.platforms.qemu.enlightenments import KVM_NAME, kvm_features
from tare.units import format_number, format_size

UUID = "/sys/class/dmi/id/product_uuid"
LOOK_S = 30.0
STEAL_FLAG = "kvm-steal-time"
REPORTS_STEAL = "xen"
"""The type of hypervisor in the proof (``/sys/hypervisor/type``) that always reports steal."""
TCG_NAME = "TCGTCGTCGTCG"
UNKNOWN_STEAL = "not known to be reported"


@dataclass(frozen=True)
class Inspection:
    """The findings about a machine.

    Args:
        proof: The agent's proof of the machine.
        root: Whether Tare is root in the machine.
        memory: The machine's memory in bytes, as its kernel reports it.
        steal_s: The seconds that its kernel has counted as stolen since its boot.
        uuid: The UUID in its firmware; empty: unknown, or visible to root only.
    """

    proof: Mapping[str, Any]
    root: bool
    memory: int
    steal_s: float
    uuid: str

    @property
    def kernel(self) -> str:
        """The version of the machine's kernel."""
        return str(self.proof["kernel"]["release"])

    @property
    def may_be_realtime(self) -> bool:
        """Whether programs that Tare starts in the machine may have real-time priority."""
        return bool(self.proof.get("scheduler", {}).get("may_be_realtime"))

    @property
    def emulated(self) -> bool:
        """Whether the machine's processor is visibly emulated in software."""
        return TCG_NAME in self.proof.get("hypervisor", {}).get("signatures", ())

    @property
    def features(self) -> tuple[str, ...]:
        """KVM's features for the machine in addition to the processor's, by QEMU's names."""
        seen = self.proof.get("hypervisor", {})
        names = list(seen.get("signatures", ()))
        if KVM_NAME not in names:
            return ()
        leaf = f"{0x40000000 + 0x100 * names.index(KVM_NAME) + 1:x}.0"
        registers = str(seen.get("leaves", {}).get(leaf, "0")).split()
        return kvm_features(int(registers[0], 16))

    @property
    def steal(self) -> str:
        """Whether the hypervisor reports steal, in words; unreported steal is never shown as 0."""
        if self.steal_s > 0:
            return f"reported ({format_number(self.steal_s)} s since it booted)"
        seen = self.proof.get("hypervisor", {})
        # The agent reports this itself; it also detects VMware's steal clock.
        known = seen.get("tells_steal") or seen.get("type") == REPORTS_STEAL
        if known or STEAL_FLAG in self.features:
            return "reported (nothing since it booted)"
        return UNKNOWN_STEAL

    def shown(self) -> dict[str, str]:
        """Return the facts that the machine shows, by name; unknown facts are left out."""
        machine, seen = self.proof.get("machine", {}), self.proof.get("hypervisor", {})
        made = [machine.get(name) for name in ("vendor", "product", "firmware")]
        shown = {
            "machine": ", ".join(str(word) for word in made if word),
            "hypervisor": ", ".join(seen.get("signatures", ()))
            or ("announced without a name" if seen.get("announced") else ""),
            "para-virtual features": ", ".join(self.features),
            "clock": str(self.proof.get("clocksource", {}).get("current") or ""),
            "drivers": ", ".join(_drivers(self.proof)),
            "memory": format_size(self.memory),
            "CPUs": str(self.proof.get("topology", {}).get("online") or ""),
            "steal": self.steal,
        }
        return {name: words for name, words in shown.items() if words}


def _drivers(proof: Mapping[str, Any]) -> list[str]:
    devices = [*proof.get("nics", ()), *proof.get("disks", ())]
    return sorted({str(each["driver"]) for each in devices if each.get("driver")})


async def look(host: Host, agent: str) -> Inspection:
    """Inspect a machine.

    Args:
        host: The machine.
        agent: The agent's program there.

    Raises:
        MachineFault: The agent does not run there, or its output is not a proof.
    """
    proved = await host.run([agent, "proof"], timeout_s=LOOK_S)
    if not proved.ok:
        raise MachineFault(f"{host.name}: the agent does not run there: {proved.words()}")
    try:
        proof = json.loads(proved.stdout)
        memory = int(proof["memory"]["total"])
        ticks = int((await host.read("/proc/stat")).split(b"\n", 1)[0].split()[8])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise MachineFault(f"{host.name}: its agent's proof is not whole: {error!r}") from error
    root = (await host.run(["id", "-u"], timeout_s=LOOK_S)).stdout.strip() == b"0"
    per_s = (await kernel_units(host)).ticks_per_s
    try:
        uuid = (await host.read(UUID)).decode(errors="replace").strip().lower()
    except OSError:
        uuid = ""
    return Inspection(proof, root, memory, ticks / per_s, uuid)


def uncontrolled(reboots: bool, carried: bool) -> tuple[str, ...]:
    """Return the aspects of an existing machine that Tare does not control, one sentence each.

    Args:
        reboots: Whether the machine is rebooted for each batch.
        carried: Whether its threads are visible on the host that carries it.
    """
    listed = [
        "on which of its host's CPUs it runs, and what runs next to it there, is as its owner "
        "arranged it",
        "its kernel, its devices and its size are its owner's choice",
    ]
    if not reboots:
        listed.append(
            "boots were not varied: every block measured the same boot, so what differs from boot "
            "to boot is not in the intervals"
        )
    if not carried:
        listed.append("what it costs its host is not known: its threads were not seen there")
    return tuple(listed)
