"""The codes in recorded series mean today what they meant when they were recorded."""

from __future__ import annotations

from enum import IntEnum

import pytest

from tare.events.host_schedule import IDLE, HostEvent, SwitchReason, Vector

RECORDED: dict[type[IntEnum], list[str]] = {
    SwitchReason: ["WAITING", "READY", "STOPPED"],
    HostEvent: [
        "SWITCH", "WAKEUP", "IRQ_ENTRY", "IRQ_EXIT", "SOFTIRQ_ENTRY", "SOFTIRQ_EXIT",
        "VECTOR_ENTRY", "VECTOR_EXIT", "QUOTA_PERIOD", "RUNS_ON",
    ],
    Vector: [
        "", "LOCAL_TIMER", "RESCHEDULE", "CALL_FUNCTION", "CALL_FUNCTION_SINGLE", "IRQ_WORK",
        "X86_PLATFORM_IPI", "THERMAL_APIC", "ERROR_APIC", "SPURIOUS_APIC",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", RECORDED)
def test_a_recorded_number_keeps_its_meaning(kind: type[IntEnum]) -> None:
    recorded = [(name, number) for number, name in enumerate(RECORDED[kind]) if name]
    assert [(each.name, each.value) for each in kind] == recorded
    assert IDLE == 0
