"""Settings of the guest's kernel command line, and the proof that they took effect.

Source: the kernel's Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tare.study.model.platform_options import PlatformOptions


def switch_word(value: object) -> object:
    """Convert booleans back to ``on`` and ``off``, which YAML 1.1 reads as true and false."""
    return value if not isinstance(value, bool) else "on" if value else "off"


class GuestKernelOptions(PlatformOptions):
    """Settings of the guest's kernel."""

    guest_clocksource: Literal["default", "kvm-clock", "tsc", "hpet", "acpi_pm"] = Field(
        default="default",
        description="The clock that the guest's kernel reads (`clocksource=`). `kvm-clock` needs "
        "`accelerator: kvm`. Nothing is measured if the kernel uses another one.",
    )
    guest_mitigations: Annotated[Literal["default", "off"], BeforeValidator(switch_word)] = Field(
        default="default",
        description="With `off`, the guest's kernel mitigates no CPU vulnerability "
        "(`mitigations=off`). The host's mitigations stay as they are.",
    )
    guest_idle: Literal["default", "halt", "poll", "haltpoll"] = Field(
        default="default",
        description="What an idle vCPU does: `halt` executes HLT (`idle=halt`); `poll` never gives "
        "its CPU away, and occupies a CPU of the host all the time (`idle=poll`); `haltpoll` polls "
        "for a short time before HLT, with the idle driver of that name (needs `accelerator: "
        "kvm`). Nothing is measured if the kernel uses another driver.",
    )
    guest_huge_pages: Literal["default", "always", "madvise", "never"] = Field(
        default="default",
        description="Transparent huge pages in the guest (`transparent_hugepage=`): for all "
        "memory, on a program's request, or never. Nothing is measured if the kernel has another "
        "mode.",
    )
    guest_pv_spinlocks: bool = Field(
        default=True,
        description="With `false`, the guest's kernel spins on a contended lock as on a bare "
        "machine (`nopvspin`). By default it halts under KVM until the lock is free.",
    )
    guest_x2apic: bool = Field(
        default=True,
        description="With `false`, the guest's kernel uses its interrupt controller through memory "
        "instead of registers (`nox2apic`).",
    )

    @property
    def guest_arguments(self) -> tuple[str, ...]:
        """The kernel command line for these settings; empty for the defaults."""
        words = {
            f"clocksource={self.guest_clocksource}": self.guest_clocksource != "default",
            # Linux distrusts a TSC that an emulator may stop, unless it is declared reliable.
            "tsc=reliable": self.guest_clocksource == "tsc",
            "mitigations=off": self.guest_mitigations == "off",
            f"idle={self.guest_idle}": self.guest_idle in ("halt", "poll"),
            # Without this, the driver is used only if the host declares its CPUs as dedicated.
            "cpuidle_haltpoll.force=1": self.guest_idle == "haltpoll",
            f"transparent_hugepage={self.guest_huge_pages}": self.guest_huge_pages != "default",
            "nopvspin": not self.guest_pv_spinlocks,
            "nox2apic": not self.guest_x2apic,
        }
        return tuple(word for word, asked in words.items() if asked)

    @property
    def guest_kernel_words(self) -> tuple[str, ...]:
        """The reports' phrases for these settings; empty for the defaults."""
        arguments = self.guest_arguments
        return (f"guest kernel {' '.join(arguments)}",) if arguments else ()


def kernel_differs(options: GuestKernelOptions, proof: Mapping[str, Any]) -> str:
    """Return how a guest's kernel differs from its options, in words; empty if it does not.

    Args:
        options: The options.
        proof: The agent's proof of its environment.
    """
    found = []
    seen = {
        "clocksource": (
            options.guest_clocksource,
            (proof.get("clocksource") or {}).get("current"),
        ),
        "transparent huge pages": (
            options.guest_huge_pages,
            (proof.get("memory") or {}).get("transparent_huge_pages"),
        ),
        "idle driver": (
            "haltpoll" if options.guest_idle == "haltpoll" else "default",
            (proof.get("power") or {}).get("idle_driver"),
        ),
    }
    for name, (wanted, used) in seen.items():
        # Early in boot, the kernel calls the TSC `tsc-early`.
        if wanted not in ("default", used, str(used).removesuffix("-early")):
            found.append(f"{name}: {used or 'unknown'} instead of {wanted}")
    command_line = str((proof.get("kernel") or {}).get("cmdline", "")).split()
    missing = [word for word in options.guest_arguments if word not in command_line]
    if missing:
        found.append(f"the kernel did not get {' '.join(missing)}")
    return "; ".join(found)
