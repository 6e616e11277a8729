"""Settings of the guest's kernel: its command line, and a real guest that has them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tare.platforms.qemu.guest_kernel import kernel_differs
from tare.platforms.qemu.options import QemuOptions


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, ()),
        ({"guest_clocksource": "hpet"}, ("clocksource=hpet",)),
        ({"guest_clocksource": "tsc"}, ("clocksource=tsc", "tsc=reliable")),
        ({"guest_mitigations": "off"}, ("mitigations=off",)),
        ({"guest_idle": "poll"}, ("idle=poll",)),
        (
            {"guest_idle": "haltpoll", "accelerator": "kvm"},
            ("cpuidle_haltpoll.force=1",),
        ),
        ({"guest_huge_pages": "never"}, ("transparent_hugepage=never",)),
        ({"guest_pv_spinlocks": False, "accelerator": "kvm"}, ("nopvspin",)),
        ({"guest_x2apic": False}, ("nox2apic",)),
    ],
)
def test_each_setting_is_an_argument_of_the_kernel(
    options: dict[str, object], arguments: tuple[str, ...]
) -> None:
    assert QemuOptions.model_validate(options).guest_arguments == arguments


@pytest.mark.parametrize(
    "options",
    [
        {"guest_clocksource": "kvm-clock"},
        {"guest_pv_spinlocks": False},
        {"guest_idle": "haltpoll"},
    ],
)
def test_options_of_kvm_are_refused_under_tcg(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="needs `accelerator: kvm`"):
        QemuOptions.model_validate(options)


def test_a_kernel_that_differs_from_the_options_is_reported() -> None:
    options = QemuOptions(guest_clocksource="hpet", guest_huge_pages="never")
    proof = {
        "clocksource": {"current": "acpi_pm"},
        "memory": {"transparent_huge_pages": "never"},
        "kernel": {"cmdline": "quiet clocksource=hpet transparent_hugepage=never"},
    }
    assert kernel_differs(options, proof) == "clocksource: acpi_pm instead of hpet"
    assert kernel_differs(QemuOptions(), {}) == ""
    polling = QemuOptions(guest_idle="haltpoll", accelerator="kvm")
    forced = {"kernel": {"cmdline": "cpuidle_haltpoll.force=1"}}
    none = {**forced, "power": {"idle_driver": "none"}}
    assert kernel_differs(polling, none) == "idle driver: none instead of haltpoll"
    assert kernel_differs(polling, {**forced, "power": {"idle_driver": "haltpoll"}}) == ""
    without = {**proof, "clocksource": {"current": "hpet"}, "kernel": {"cmdline": "quiet"}}
    assert "did not get clocksource=hpet transparent_hugepage=never" in kernel_differs(
        options, without
    )
