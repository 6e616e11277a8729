"""Noise is read from lines of osnoise and hwlat, and measured without disturbing other tracers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events import CpuNoise
from tare.hosts import Ledger, LocalHost
from tare.hosts.contract import Host
from tare.hosts.ledger.cleanup import OF_EVERY_HOST
from tare.hosts.trace import noise
from tare.hosts.trace.noise import measure_noise, parse_hwlat, parse_osnoise
from tare.hosts.trace.tracefs import NoTracing, tracing_root

OSNOISE = """\
# tracer: osnoise
#
#           TASK-PID      CPU# |||||   TIMESTAMP    IN US       IN US  AVAILABLE  IN US     HW    NMI    IRQ   SIRQ THREAD
       osnoise/0-859     [000] d....    81.637220: 1000000        190  99.98100       9     18      0   1007     18      1
       osnoise/1-860     [001] d....    81.638154: 1000000        656  99.93440      74     23      2   1006     16      3
       osnoise/0-859     [000] d....    82.637220: 1000000         10  99.99900      10      1      0   1000      1      0
"""  # noqa: E501
HWLAT = """\
# tracer: hwlat
#
           <...>-1729    [001] d....   678.473449: #1     inner/outer(us):   11/12    ts:1581527483.343962693 count:6
           <...>-1729    [000] d....   689.556542: #2     inner/outer(us):   16/9     ts:1581527494.889008092 count:1 nmi-total:7 nmi-count:1
           <...>-1729    [001] d....   714.756290: #3     inner/outer(us):   16/16    ts:1581527519.678961629
"""  # noqa: E501


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as opened:
        yield opened


def test_lines_of_osnoise_add_up_by_cpu() -> None:
    first, second = parse_osnoise(OSNOISE)
    assert first.taken_s == pytest.approx(200e-6) and first.longest_s == pytest.approx(10e-6)
    assert first.model_copy(update={"taken_s": 0.0, "longest_s": 0.0}) == CpuNoise(
        cpu=0, watched_s=2.0, hardware=19, nmis=0, irqs=2007, softirqs=19, threads=1
    )
    assert second.nmis == 2 and second.share == pytest.approx(656e-6)


def test_lines_of_hwlat_give_the_longest_gap_and_a_lower_bound_of_time() -> None:
    first, second, idle = parse_hwlat(HWLAT, {0: 1.0, 1: 1.0, 5: 1.0})
    assert first.taken_s == first.longest_s == pytest.approx(16e-6)
    assert (first.watched_s, first.hardware, first.nmis) == (1.0, 1, 1)
    # Six gaps of 5 us and more, the longest took 12; and one of 16.
    assert second.taken_s == pytest.approx(12e-6 + 5 * 5e-6 + 16e-6)
    assert second.hardware == 7 and second.longest_s == pytest.approx(16e-6)
    assert idle == CpuNoise(cpu=5, watched_s=1.0)
    # A window lasts as long as the gaps in it.
    (long,) = parse_hwlat(HWLAT.splitlines()[3], {0: 1e-6})
    assert long.share == 1.0


COUNTS = st.integers(0, 10**8)


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 10**7), st.floats(0, 1), *[COUNTS] * 5))
)
def test_output_of_osnoise_is_parsed(
    lines: list[tuple[int, int, float, int, int, int, int, int]],
) -> None:
    text, taken = "", dict[int, int]()
    for cpu, runtime, share, *counts in lines:
        lost = int(runtime * share)
        taken[cpu] = taken.get(cpu, 0) + lost
        free = (runtime - lost) * 10_000_000 // runtime
        shown = f"{free // 100_000:3}.{free % 100_000:05}"
        numbers = " ".join(f"{count:6}" for count in counts)
        text += f" osnoise/{cpu}-{cpu + 9} [{cpu:03}] d.... 81.637220: {runtime} {lost:10} {shown} "
        text += f"{lost:7} {numbers}\n"
    found = parse_osnoise(text)
    assert {each.cpu: round(each.taken_s * 1e6) for each in found} == taken
    assert sum(each.threads for each in found) == sum(line[-1] for line in lines)


@pytest.mark.fuzz
@given(st.text(max_size=300) | st.builds(lambda whole, at, by: whole[:at] + by + whole[at + 3 :],
       st.sampled_from([OSNOISE, HWLAT]), st.integers(0, 700), st.text(max_size=5)))  # fmt: skip
def test_no_text_makes_the_readers_fail(text: str) -> None:
    for each in (*parse_osnoise(text), *parse_hwlat(text, {})):
        assert each.taken_s >= 0 and each.longest_s >= 0


# A tree of files in the place of the kernel's

SHARED = {
    "available_tracers": "hwlat osnoise nop",
    "current_tracer": "nop",
    "tracing_thresh": "0",
    "osnoise/cpus": "0-7",
    "osnoise/runtime_us": "1000000",
    "osnoise/period_us": "1000000",
    "osnoise/stop_tracing_us": "7",
    "osnoise/stop_tracing_total_us": "0",
    "hwlat_detector/width": "500000",
    "hwlat_detector/window": "1000000",
}


class Tree:
    """A folder that looks like tracefs, and what was in it while a tracer ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: list[dict[str, str]] = []
        for name, content in SHARED.items():
            self.write(name, content)

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")

    def shared(self) -> dict[str, str]:
        return {name: (self.root / name).read_text().strip() for name in SHARED}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    found = Tree(tmp_path / "tracing")

    @asynccontextmanager
    async def root_of(host: Host, ledger: Ledger) -> AsyncIterator[Path]:
        yield found.root

    @asynccontextmanager
    async def instance_of(host: Host, ledger: Ledger, root: Path) -> AsyncIterator[Path]:
        instance = root / "instances" / "tare-1"
        instance.mkdir(parents=True)
        yield instance
        names = ("current_tracer", "tracing_cpumask", "tracing_on")
        found.runs.append({name: (instance / name).read_text().strip() for name in names})
        for file in instance.iterdir():
            file.unlink()
        instance.rmdir()

    async def sleep(seconds: float) -> None:
        instance = found.root / "instances" / "tare-1"
        running = (instance / "current_tracer").read_text().strip()
        found.runs.append({"running": running, **found.shared()})
        (instance / "trace").write_text(OSNOISE if running == "osnoise" else HWLAT)

    monkeypatch.setattr(noise, "tracing_root", root_of)
    monkeypatch.setattr(noise, "instance_in", instance_of)
    monkeypatch.setattr("tare.hosts.trace.noise.asyncio.sleep", sleep)
    return found


async def test_both_tracers_run_in_an_instance_and_shared_settings_are_restored(
    tree: Tree, ledger: Ledger
) -> None:
    found = await measure_noise(LocalHost(), ledger, [1, 0], 2.0)
    assert found.by == "hwlat"
    assert [each.cpu for each in found.system] == [each.cpu for each in found.firmware] == [0, 1]
    # Without per-cpu mode, one thread of hwlat takes the CPUs in turns: here for no time.
    assert found.firmware[0].watched_s == pytest.approx(16e-6, abs=0.1)
    system, after, firmware, _ = tree.runs
    assert system["running"] == "osnoise" and system["osnoise/cpus"] == "0-1"
    assert system["osnoise/stop_tracing_us"] == "0" and system["tracing_thresh"] == "5"
    assert firmware["running"] == "hwlat" and firmware["hwlat_detector/width"] == "50000"
    assert after == {"current_tracer": "nop", "tracing_cpumask": "00000003", "tracing_on": "0"}
    assert tree.shared() == SHARED
    assert not ledger.open_entries()


async def test_osnoise_measures_firmware_itself_where_it_can_switch_interrupts_off(
    tree: Tree, ledger: Ledger
) -> None:
    tree.write("osnoise/options", "OSNOISE_WORKLOAD NO_OSNOISE_IRQ_DISABLE")
    found = await measure_noise(LocalHost(), ledger, [0, 1], 2.0)
    assert found.by == "osnoise" and found.firmware == parse_osnoise(OSNOISE)
    # The kernel would list the other options too; the file keeps what was written last.
    written = (tree.root / "osnoise/options").read_text()
    assert written == "NO_OSNOISE_IRQ_DISABLE\n"
    assert [run["running"] for run in tree.runs if "running" in run] == ["osnoise", "osnoise"]


async def test_a_cpu_without_output_of_osnoise_is_an_error(tree: Tree, ledger: Ledger) -> None:
    with pytest.raises(NoTracing, match=r"nothing of CPU 2 within 2 s"):
        await measure_noise(LocalHost(), ledger, [0, 2], 2.0)
    assert tree.shared() == SHARED and not ledger.open_entries()


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("current_tracer", "tracer function; it is left"),
        ("instances/mine/current_tracer", "tracer function in its instance mine; it is left"),
    ],
)
async def test_somebody_elses_tracer_is_left_undisturbed(
    tree: Tree, ledger: Ledger, where: str, says: str
) -> None:
    tree.write(where, "function")
    before = tree.shared()
    with pytest.raises(NoTracing, match=says):
        await measure_noise(LocalHost(), ledger, [0, 1], 2.0)
    assert tree.shared() == before and not tree.runs


async def test_a_kernel_without_the_tracers_is_refused(tree: Tree, ledger: Ledger) -> None:
    tree.write("available_tracers", "blk function nop")
    with pytest.raises(NoTracing, match="built without the tracers osnoise and hwlat"):
        await measure_noise(LocalHost(), ledger, [0], 2.0)


async def test_a_setting_that_the_kernel_refuses_is_the_reason(tree: Tree, ledger: Ledger) -> None:
    (tree.root / "osnoise/period_us").unlink()
    with pytest.raises(NoTracing, match=r"osnoise cannot be used: .*period_us"):
        await measure_noise(LocalHost(), ledger, [0, 1], 2.0)
    (tree.root / "osnoise/period_us").write_text("1000000\n")
    assert tree.shared() == SHARED and not ledger.open_entries()


async def test_choices_of_a_killed_run_are_undone(tmp_path: Path, ledger: Ledger) -> None:
    mode = tmp_path / "mode"
    mode.write_text("none round-robin [per-cpu]\n")
    entry = ledger.record("choice", path=str(mode), choices=["none", "per-cpu"], before="none",
                          value="per-cpu")  # fmt: skip
    with pytest.raises(Exception, match="none"):
        # An ordinary file has no brackets around what is written.
        mode.chmod(0o400)
        await OF_EVERY_HOST["choice"](Unwritable(), entry)
    mode.chmod(0o600)
    await OF_EVERY_HOST["choice"](LocalHost(), entry)
    assert mode.read_text() == "none\n"


class Unwritable(LocalHost):
    """This computer, whose files nobody can write."""

    async def write(self, path: str | Path, data: bytes) -> None:
        raise OSError(f"{path} refuses {data.decode().strip()}")


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's tracers need root")
async def test_this_computers_noise_is_measured_if_its_kernel_can(ledger: Ledger) -> None:
    host = LocalHost()
    async with tracing_root(host, ledger) as root:
        available = (root / "available_tracers").read_text().split()
    if not {"osnoise", "hwlat"} & set(available):
        with pytest.raises(NoTracing, match="built without"):
            await measure_noise(host, ledger, host.topology().online, 1.0)
        assert not ledger.open_entries()
        pytest.skip(f"this kernel has only the tracers {' '.join(available)}")
    found = await measure_noise(host, ledger, host.topology().online, 1.0)
    assert found.firmware or found.system
    assert not ledger.open_entries()
