"""Features that a hypervisor reports to its guest, so that the guest can avoid exits: on or off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

KvmFlag = Literal[
    "kvm-nopiodelay",
    "kvm-mmu",
    "kvm-asyncpf",
    "kvm-asyncpf-int",
    "kvm-asyncpf-vmexit",
    "kvm-steal-time",
    "kvm-pv-eoi",
    "kvm-pv-unhalt",
    "kvm-pv-tlb-flush",
    "kvm-pv-ipi",
    "kvm-pv-sched-yield",
    "kvm-poll-control",
    "kvm-msi-ext-dest-id",
    "kvm-hint-dedicated",
    "kvmclock",
    "kvmclock-stable-bit",
]
"""The bits of KVM's CPUID leaf 40000001, by QEMU's names (the kernel's
Documentation/virt/kvm/x86/cpuid.rst, QEMU's target/i386/cpu.c)."""

HypervFlag = Literal[
    "hv-relaxed",
    "hv-vapic",
    "hv-time",
    "hv-crash",
    "hv-reset",
    "hv-vpindex",
    "hv-runtime",
    "hv-synic",
    "hv-stimer",
    "hv-stimer-direct",
    "hv-frequencies",
    "hv-reenlightenment",
    "hv-tlbflush",
    "hv-ipi",
    "hv-evmcs",
    "hv-avic",
]
"""Hyper-V's features, which KVM can also offer (QEMU's docs/system/i386/hyperv.rst)."""

KVM_FLAGS: tuple[str, ...] = get_args(KvmFlag)
HYPERV_FLAGS: tuple[str, ...] = get_args(HypervFlag)

CLOCK_FLAGS = ("kvmclock", "kvmclock-stable-bit")
USUAL_HYPERV: tuple[str, ...] = (
    "hv-relaxed",
    "hv-vapic",
    "hv-vpindex",
    "hv-runtime",
    "hv-time",
    "hv-synic",
    "hv-stimer",
    "hv-tlbflush",
    "hv-ipi",
    "hv-frequencies",
    "hv-reset",
)
"""The flags that QEMU's documentation recommends for every guest. Some flags need others, so each
follows those that it needs."""
SPINLOCKS = "hv-spinlocks=0x1fff"
"""How often a guest tries a lock before it calls the hypervisor: the documentation's value."""


class Enlightenments(BaseModel):
    """Features that KVM reports to a guest, so that the guest can avoid exits.

    `kvm: off` hides KVM, as on a bare machine: the guest uses the TSC as its clock and no
    features of KVM. A Linux guest that sees both KVM and Hyper-V uses KVM's features;
    `{kvm: off, hyperv: on}` makes it use Hyper-V's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kvm: bool = Field(
        default=True,
        description="KVM's own features: all that the host's KVM supports, or none; "
        "then its name is hidden too.",
    )
    kvmclock: bool = Field(
        default=True, description="KVM's clock. `false`: the guest chooses another clock."
    )
    hyperv: bool = Field(
        default=False,
        description="Also Hyper-V's features that QEMU's documentation recommends for every guest.",
    )
    add: tuple[KvmFlag | HypervFlag, ...] = Field(
        default=(), description="Additional flags, by QEMU's names."
    )
    remove: tuple[KvmFlag | HypervFlag, ...] = Field(
        default=(), description="Flags to leave out, by QEMU's names."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if both := sorted({*self.add} & {*self.remove}):
            raise ValueError(f"{', '.join(both)}: both added and removed; name it once")
        for name, lot, flags in (
            ("kvm", self.kvm, KVM_FLAGS),
            ("kvmclock", self.kvm and self.kvmclock, CLOCK_FLAGS),
        ):
            if not lot and (idle := [flag for flag in self.add if flag in flags]):
                raise ValueError(f"{', '.join(idle)} cannot be added with `{name}: off`")
        if not self.hyperv and (idle := [flag for flag in self.remove if flag in HYPERV_FLAGS]):
            raise ValueError(f"{', '.join(idle)} is not there to be removed without `hyperv: on`")
        return self

    @property
    def asks(self) -> bool:
        """Whether any setting differs from QEMU's default."""
        return self != Enlightenments()

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that follow the processor model on QEMU's command line."""
        words: list[str] = []
        if not self.kvm:
            words.append("kvm=off")
        elif not self.kvmclock:
            words += [f"{flag}=off" for flag in CLOCK_FLAGS]
        if self.hyperv:
            words += [f"{flag}=on" for flag in USUAL_HYPERV if flag not in self.remove]
            words.append(SPINLOCKS)
        words += [f"{flag}=on" for flag in self.add]
        words += [f"{flag}=off" for flag in self.remove if flag in KVM_FLAGS]
        return tuple(dict.fromkeys(words))

    def words(self) -> str:
        """Return a phrase for reports, such as ``without kvmclock``; empty for the defaults."""
        without = [flag.removeprefix("kvm-") for flag in self.remove]
        if not self.kvm:
            without.insert(0, "KVM's name")
        elif not self.kvmclock:
            without.insert(0, "kvmclock")
        having = ["Hyper-V enlightenments"] if self.hyperv else []
        having += list(self.add)
        parts = []
        if having:
            parts.append(f"with {', '.join(having)}")
        if without:
            parts.append(f"without {', '.join(without)}")
        return " ".join(parts)


def contradiction(wanted: Enlightenments, seen: Mapping[str, Any]) -> str:
    """Return how the guest's view differs from the request, in words; empty if it does not.

    Args:
        wanted: The requested enlightenments.
        seen: ``hypervisor`` of the agent's proof: what CPUID announces in the guest.
    """
    signatures = seen.get("signatures", ())
    base = 0x40000100 if wanted.hyperv else 0x40000000
    registers = seen.get("leaves", {}).get(f"{base + 1:x}.0", "0").split()
    offered = kvm_features(int(registers[0], 16)) if KVM_NAME in signatures else ()
    found: list[str] = []
    if wanted.kvm != (KVM_NAME in signatures):
        found.append("the guest does not see KVM" if wanted.kvm else "the guest sees KVM still")
    if wanted.hyperv != (HYPERV_NAME in signatures):
        found.append(f"the guest {'does not see' if wanted.hyperv else 'sees'} Hyper-V")
    unwanted = {*wanted.remove, *(() if wanted.kvmclock else CLOCK_FLAGS)}
    found += [f"{flag} is still there" for flag in offered if flag in unwanted]
    known = {flag for flag in wanted.add if flag in _BITS.values()}
    found += [f"{flag} is not there" for flag in sorted(known - {*offered})]
    return "; ".join(found)


def kvm_features(features: int) -> tuple[str, ...]:
    """Return QEMU's names of the features that KVM announces.

    Args:
        features: EAX of KVM's features leaf, CPUID 40000001 unless Hyper-V's leaves come first.
    """
    return tuple(dict.fromkeys(name for bit, name in _BITS.items() if features >> bit & 1))


KVM_NAME, HYPERV_NAME = "KVMKVMKVM", "Microsoft Hv"

_BITS: dict[int, str] = {
    0: "kvmclock",
    1: "kvm-nopiodelay",
    2: "kvm-mmu",
    3: "kvmclock",
    4: "kvm-asyncpf",
    5: "kvm-steal-time",
    6: "kvm-pv-eoi",
    7: "kvm-pv-unhalt",
    9: "kvm-pv-tlb-flush",
    10: "kvm-asyncpf-vmexit",
    11: "kvm-pv-ipi",
    12: "kvm-poll-control",
    13: "kvm-pv-sched-yield",
    14: "kvm-asyncpf-int",
    15: "kvm-msi-ext-dest-id",
    24: "kvmclock-stable-bit",
}
