"""The table of the kernels that were measured on."""

from __future__ import annotations

from collections.abc import Iterable

from tare.analysis.kernels import KernelFacts, kernels
from tare.analysis.rundata import RunData
from tare.report.tables import Column, Table
from tare.report.words import NONE, marked


def kernels_table(runs: Iterable[RunData]) -> Table[KernelFacts]:
    """Return each arm's kernel: how often it ticks, where not, and how it is preempted."""
    columns: tuple[Column[KernelFacts], ...] = (
        Column("arm", lambda k: k.arm, "Arm", lambda k: marked(k.arm, k.emulated)),
        Column("emulated", lambda k: k.emulated),
        Column("release", lambda k: k.release, "Kernel", lambda k: k.release or NONE),
        Column(
            "tick_hz",
            lambda k: k.tick_hz,
            "Ticks (HZ)",
            lambda k: NONE if k.tick_hz is None else f"{k.tick_hz:,.10g}/s",
            numeric=True,
        ),
        Column("preempt", lambda k: k.preempt, "Preemption", _preemption),
        Column("tickless", lambda k: k.tickless, "nohz_full", lambda k: k.tickless or "none"),
        Column("isolated", lambda k: k.isolated, "Isolated", lambda k: k.isolated or "none"),
    )
    tone = lambda k: "emulated" if k.emulated else ""  # noqa: E731
    caption = "The kernels that were measured on, as they tell it themselves"
    return Table("kernels", caption, columns, kernels(runs), tone=tone)


def _preemption(kernel: KernelFacts) -> str:
    return "PREEMPT_RT" if kernel.preempt == "rt" else kernel.preempt or NONE
