"""Show that Tare detects a longer path in a hypervisor, and reports none if there is none.

Xen is built from the distribution's unchanged source, and once with a slow path in a hypercall that
its paravirtual guests make at each switch of threads. Further builds have changes that make nothing
slower: other bytes at other addresses. Each Xen is measured in deterministic labs, and compared
with the first one.

usage: python -m scripts.path_regressions --work DIR [--same N] [--labs N]

Builds and runs that are in DIR already are not repeated, so you can interrupt the program.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tare.analysis import compare_runs, load_run
from tare.analysis.data.settings import Settings
from tare.analysis.effects.comparison import Comparison
from tare.analysis.runs.gates import check, parse_gate, worst
from tare.analysis.runs.run_changes import Change, changes
from tare.hosts.local import LocalHost
from tare.lab.xen_source import STAMP, XenSource, xen_in
from tare.run.lifecycle.session import agent_path

STUDY = Path(__file__).with_name("path-lengths.yaml")
SAME = 20
BASE, PLANTED = "base", "planted"
GATE = "switch latency-median < +1 %"
SEED = "7"
CONFIDENCE = 0.95

HYPERCALLS = Path("arch/x86/pv/misc-hypercalls.c")
BEFORE = (
    "    fixup_guest_stack_selector(current->domain, ss);\n    current->arch.pv.kernel_ss = ss;\n"
)
SLOW = """    for ( unsigned int turn = 0; turn < 100; turn++ )
        barrier(); /* planted: some 200 instructions at each switch of threads */
"""
INNOCENT = """
static void __used innocent_{number}(void)
{{
    asm volatile ( ".skip {size}, 0x90" );
}}
"""


@dataclass(frozen=True)
class Build:
    """One Xen.

    Args:
        name: Its name in this program.
        planted: Whether it has the slow path.
        number: The number of its harmless change; 0: none.
    """

    name: str
    planted: bool = False
    number: int = 0

    def edited(self, text: str) -> str:
        """Return the text of the hypercalls' source file with this build's change."""
        if self.planted:
            if BEFORE not in text:
                raise SystemExit(f"{HYPERCALLS} is another one here: do_stack_switch has changed")
            return text.replace(BEFORE, SLOW + BEFORE)
        if self.number:
            # A different size for each build, so that the code after it has other addresses.
            innocent = INNOCENT.format(number=self.number, size=48 * self.number + 5)
            return text.replace("\nlong do_stack_switch(", f"{innocent}\nlong do_stack_switch(")
        return text


def builds(same: int) -> list[Build]:
    """Return all builds: the first, the slow one, and ``same`` builds as fast as the first."""
    others = [Build(f"same-{number:02}", number=number) for number in range(1, same + 1)]
    return [Build(BASE), Build(PLANTED, planted=True), *others]


@contextmanager
def edited(source: XenSource, build: Build) -> Iterator[None]:
    """Change the tree for a build, and change it back."""
    file = source.tree / HYPERCALLS
    # Keep the original next to it, so that a killed build leaves no change for the next one.
    kept = file.with_suffix(".c.kept")
    if not kept.exists():
        kept.write_text(file.read_text())
    file.write_text(build.edited(kept.read_text()))
    try:
        yield
    finally:
        file.write_text(kept.read_text())


async def build_all(work: Path, wanted: Sequence[Build]) -> None:
    """Build the missing builds into ``work/xens``."""
    kept = work / "xens"
    kept.mkdir(parents=True, exist_ok=True)
    missing = [build for build in wanted if not (kept / build.name).exists()]
    if not missing:
        return
    host = LocalHost(agent_path())
    source = await xen_in(host, work / "source")
    if not (source.tree / ".config").is_file():
        await source.configure(())
    for build in missing:
        began = time.monotonic()
        with edited(source, build):
            stamp = {**STAMP, "XEN_BUILD_DATE": build.name}
            made = await source.build(stamp)
            made.replace(kept / build.name)
        print(f"built {build.name} in {time.monotonic() - began:.0f} s", flush=True)


def measure(work: Path, build: Build) -> Path:
    """Measure one Xen in a lab, or resume its run; return the run's folder."""
    folder = work / "runs" / build.name
    begun = (folder / "events.jsonl").exists()
    if begun and load_run(folder).complete:
        return folder
    began = time.monotonic()
    xen = (work / "xens" / build.name).resolve()
    asked = ("run", STUDY, "--out", folder, "--set", f"lab.xen={xen}", "--seed", SEED)
    subprocess.run(
        [Path(sys.executable).with_name("tare"), *(("resume", folder) if begun else asked)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    print(f"measured {build.name} in {time.monotonic() - began:.0f} s", flush=True)
    return folder


def measure_all(work: Path, wanted: Sequence[Build], labs: int) -> list[Path]:
    """Measure each Xen, ``labs`` at a time: deterministic labs do not disturb one another."""
    with ThreadPoolExecutor(labs) as pool:
        return list(pool.map(partial(measure, work), wanted))


def compared(folder: Path) -> Comparison:
    """Return a run's effects."""
    run = load_run(folder)
    return compare_runs(run, Settings.of([run]))


def report_lines(found: Sequence[Sequence[Change]]) -> Iterator[str]:
    """Yield a row for each metric: the slow build's change, and the range of the others."""
    planted, *others = found
    for change in planted:
        if not change.ratio:
            continue
        key = (change.key, change.arm)
        same = [each.change for run in others for each in run if (each.key, each.arm) == key]
        span = f"{percent(min(same))} to {percent(max(same))}" if same else "–"
        yield (
            f"| {change.key.workload} `{change.key.metric}` | {percent(change.change)} "
            f"({percent(change.low)} to {percent(change.high)}) | {span} |"
        )


def percent(ratio: float) -> str:
    """Return a ratio as a change in per cent."""
    # Adding 0.0 turns a rounded -0 into 0.
    return f"{round(100 * (ratio - 1), 3) + 0.0:+.3f} %"


def main(argv: list[str] | None = None) -> int:
    """Build, measure, compare; return 1 when the slow path is missed or another build fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.path_regressions")
    parser.add_argument("--work", type=Path, required=True, help="where builds and runs are kept")
    parser.add_argument(
        "--same", type=int, default=SAME, help=f"builds as fast; {SAME} if left out"
    )
    parser.add_argument("--labs", type=int, default=2, help="labs side by side, 2 if left out")
    asked = parser.parse_args(argv)
    wanted = builds(asked.same)
    asyncio.run(build_all(asked.work, wanted))
    folders = measure_all(asked.work, wanted, asked.labs)
    base, *others = map(compared, folders)
    gate = (parse_gate(GATE),)
    outcomes = [worst(check(base, other, gate)) for other in others]
    found = [changes(base, other, CONFIDENCE, ranges=True) for other in others]
    print(f"| metric | planted | {len(others) - 1} builds as fast |\n|---|---|---|")
    print("\n".join(report_lines(found)))
    passed = outcomes[1:].count("holds")
    print(f"{GATE}: the slow one {outcomes[0]}; of {len(others) - 1} as fast {passed} pass")
    return int(outcomes[0] != "fails" or passed != len(others) - 1)


if __name__ == "__main__":
    sys.exit(main())
