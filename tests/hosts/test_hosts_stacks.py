"""Kernel stacks are read from the tracer's text, whatever it is, and recorded on this host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events.stacks import Sight
from tare.hosts import Ledger, LocalHost
from tare.hosts.trace.stacks import (
    MOST_FRAMES,
    Stack,
    Stacks,
    parse_stacks,
    stack_recorder,
)
from tare.hosts.trace.tracefs import NoTracing

# From Linux 6.18; of two CPUs, as the file `trace` merges them.
TEXT = """\
# tracer: nop
          python-25769   [001] d.h.. 52176.681781: csd_function_entry: func=do_sync_core, csd=000000008dc231e2
            bash-27689   [000] d..2. 52176.681790: sched_switch: prev_comm=bash prev_pid=27689 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          python-25769   [001] d.h.. 52176.681804: <stack trace>
 => trace_event_raw_event_csd_function
 => __flush_smp_call_function_queue
 => __sysvec_call_function_single
 => sysvec_call_function_single
 => asm_sysvec_call_function_single
            bash-27689   [000] d..2. 52176.681882: <stack trace>
 => trace_event_raw_event_sched_switch
 => __traceiter_sched_switch
 => __schedule
 => schedule
 => do_wait
 => kernel_wait4
CPU:1 [LOST 17 EVENTS]
 my worker 0:1-7       [001] ..s.. 52176.700000: softirq_entry: vec=3 [action=NET_RX]
 my worker 0:1-7       [001] ..s.. 52176.700001: <stack trace>
 => trace_event_raw_event_softirq
 => handle_softirqs
 => do_softirq.part.0
 => __local_bh_enable_ip
 => ip_finish_output2
              dd-27705   [000] ...1. 52176.800000: tracing_mark_write:               dd-27705   [000] ..... 52176.345949: <stack trace>
 => vfs_write
         swapper-9       [000] d.h.. 52176.900000: irq_handler_entry: irq=27 name=ahci[0000:00:1f.2]
           other-10      [000] d.h.. 52176.900002: <stack trace>
 => schedule
"""  # noqa: E501


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as opened:
        yield opened


def test_each_stack_has_the_event_of_its_own_cpu_by_name() -> None:
    found, lost = parse_stacks(TEXT)
    call, switch, softirq, stray = found
    assert lost == 17
    assert call == Stack(
        52176_681_804_000,
        1,
        25769,
        Sight(
            "function call do_sync_core",
            "python",
            (
                "__flush_smp_call_function_queue",
                "__sysvec_call_function_single",
                "sysvec_call_function_single",
                "asm_sysvec_call_function_single",
            ),
        ),
    )
    assert call.sight.own_frames == ()
    assert (switch.sight.what, switch.cpu) == ("switch to swapper/0", 0)
    assert switch.sight.own_frames == ("do_wait", "kernel_wait4")
    assert (softirq.sight.what, softirq.sight.comm) == ("softirq NET_RX", "my worker 0:1")
    assert softirq.sight.own_frames == ("__local_bh_enable_ip", "ip_finish_output2")
    # The event before it was another thread's: its own found no room.
    assert (stray.sight.what, stray.sight.comm) == ("", "other")


def test_interrupts_are_named_and_what_they_interrupted_is_kept() -> None:
    line = "  vcpu 0-5  [000] d.h.. 1.000001: {}\n  vcpu 0-5  [000] d.h.. 1.000002: <stack trace>\n"
    line += " => __sysvec_apic_timer_interrupt\n => asm_sysvec_apic_timer_interrupt\n"
    line += " => kvm_mmu_page_fault\n"
    for event, what in (
        ("local_timer_entry: vector=236", "timer interrupt"),
        ("reschedule_entry: vector=253", "reschedule interrupt"),
        ("irq_handler_entry: irq=27 name=ahci[0000:00:1f.2]", "interrupt ahci[0000:00:1f.2]"),
        ("irq_handler_entry: irq=27", "irq handler"),
    ):
        (found,), _ = parse_stacks(line.format(event))
        assert found.sight.what == what
        assert found.sight.own_frames == ("kvm_mmu_page_fault",)


NAMES = st.text("abcdefgh_0123456789.", min_size=1, max_size=12).map(lambda name: f"f{name}")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**10), st.integers(0, 300), st.integers(1, 1 << 22), NAMES,
            st.lists(NAMES, max_size=MOST_FRAMES),
        )
    )
)  # fmt: skip
def test_the_kernels_output_is_parsed(
    events: list[tuple[int, int, int, str, list[str]]],
) -> None:
    text = ""
    for micros, cpu, thread, comm, frames in events:
        head = f"{comm:>16}-{thread:<7} [{cpu:03}] d..2. {micros // 10**6:5}.{micros % 10**6:06}: "
        text += f"{head}softirq_entry: vec=1 [action=TIMER]\n{head}<stack trace>\n"
        text += "".join(f" => {frame}\n" for frame in frames)
    found, lost = parse_stacks(text)
    assert lost == 0
    assert [
        (each.time_ns // 1000, each.cpu, each.thread, each.sight.comm, list(each.sight.frames))
        for each in found
    ] == events
    assert {each.sight.what for each in found} <= {"softirq TIMER"}


@pytest.mark.fuzz
@given(st.text(max_size=300) | st.builds(lambda at, by: TEXT[:at] + by + TEXT[at + 3 :],
       st.integers(0, len(TEXT)), st.text(max_size=5)))  # fmt: skip
def test_no_text_makes_the_reader_fail(text: str) -> None:
    found, lost = parse_stacks(text)
    assert lost >= 0
    for each in found:
        assert len(each.sight.frames) <= MOST_FRAMES and each.time_ns >= 0


def test_equal_sights_and_symbols_are_kept_once() -> None:
    taken = Stacks()
    taken.take(TEXT)
    taken.take(TEXT)
    assert len(taken.rows) == 8 and len(taken.sights) == 4 and taken.lost == 34
    assert taken.span_s == pytest.approx(0.218198) and Stacks().span_s == 0.0
    facts = taken.facts
    assert len(facts["symbols"]) == len(set(facts["symbols"]))
    first = facts["sights"][1]
    assert [facts["symbols"][place] for place in first["frames"]][:2] == ["__schedule", "schedule"]
    columns = taken.columns
    assert columns["sight"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (columns["time_ns"][1:] >= columns["time_ns"][:-1]).all()
    assert {name: len(column) for name, column in Stacks().columns.items()} == dict.fromkeys(
        columns, 0
    )


def test_no_more_stacks_than_memory_allows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.hosts.trace.stacks.MOST_STACKS", 5)
    taken = Stacks()
    taken.take(TEXT)
    taken.take(TEXT)
    assert len(taken.rows) == 5 and taken.lost == 2 * 17 + 3


@pytest.mark.skipif(os.geteuid() != 0, reason="tracing the kernel needs root")
async def test_this_hosts_stacks_are_recorded_and_nothing_is_left(ledger: Ledger) -> None:
    host = LocalHost()
    cpu = host.topology().online[0]
    try:
        async with stack_recorder(host, ledger) as recorder:
            cost_s = await recorder.cost_s()
            await recorder.begin([cpu])
            # A thread that leaves this CPU again and again, in the kernel's pipe_read.
            script = "for i in 1 2 3 4 5 6 7 8; do echo $i; done | while read x; do :; done"
            busy = await host.run(["taskset", "-c", str(cpu), "sh", "-c", script])
            await asyncio.sleep(0.1)
            taken = await recorder.end()
    except NoTracing as refused:
        pytest.skip(str(refused))
    finally:
        assert not ledger.open_entries()
    assert busy.ok
    assert cost_s is None or 0 <= cost_s < 1e-3
    assert taken.lost == 0
    assert {row[1] for row in taken.rows} == {cpu}
    leaving = [each for each in taken.sights if each.what.startswith("switch to ")]
    assert any("schedule" in each.frames for each in leaving)
    assert any(each.own_frames for each in leaving)
