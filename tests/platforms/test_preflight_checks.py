from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events import Check
from tare.hosts import Completed, LocalHost
from tare.platforms.linux.preflight import own_priority, preflight
from tare.study.planning.host_cpus import cpu_words

CPUS = "/sys/devices/system/cpu"


class Pretended(LocalHost):
    """This computer, with some files and one command's answer as a test wants them."""

    def __init__(self, files: dict[str, str | None], processes: str = "") -> None:
        super().__init__()
        self._files = files
        self._processes = processes

    async def read(self, path: str | Path) -> bytes:
        if str(path) not in self._files:
            return await super().read(path)
        content = self._files[str(path)]
        if content is None:
            raise FileNotFoundError(str(path))
        return content.encode()

    async def run(self, argv, **options):  # type: ignore[no-untyped-def]
        if self._processes and "/comm" in argv[-1]:
            return Completed(0, self._processes.encode(), b"")
        return await super().run(argv, **options)


async def look(name: str, files: dict[str, str | None] | None = None, processes: str = "") -> Check:
    checks = await preflight(Pretended(files or {}, processes), Path("/tmp/a/new/folder"))
    return next(check for check in checks if check.name == name)


async def test_every_check_is_made_once_here() -> None:
    checks = await preflight(LocalHost(), Path("/tmp"))
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert {"load", "governor", "turbo", "smt", "mitigations", "guests", "disk"} <= set(names)
    assert all(check.found for check in checks)
    assert all(check.hint for check in checks if check.level != "ok")


@pytest.mark.parametrize(
    ("name", "files", "level", "found"),
    [
        ("governor", {f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave\n"}, "warn", "powersave"),
        ("governor", {f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance"}, "ok", "performance"),
        ("turbo", {f"{CPUS}/intel_pstate/no_turbo": "0\n"}, "warn", "on"),
        ("turbo", {f"{CPUS}/intel_pstate/no_turbo": "1\n"}, "ok", "off"),
        ("turbo", {f"{CPUS}/cpufreq/boost": "1\n"}, "warn", "on"),
        ("smt", {f"{CPUS}/smt/active": "1\n"}, "warn", "on"),
        ("thp", {"/sys/kernel/mm/transparent_hugepage/enabled": "a [never] b"}, "ok", "never"),
        ("steal", {"/proc/stat": "cpu 100 0 0 800 0 0 0 100 0 0\n"}, "warn", "10.000%"),
        ("steal", {"/proc/stat": "cpu 100 0 0 900 0 0 0 0 0 0\n"}, "ok", "0.000%"),
        (
            "clocksource",
            {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
            "warn",
            "hpet",
        ),
        ("rt-throttling", {"/proc/sys/kernel/sched_rt_runtime_us": "-1\n"}, "ok", "off"),
        ("fair-server", {"/proc/sys/kernel/osrelease": "6.1.0-44-amd64\n"}, "ok", "has none"),
        ("isolation", {f"{CPUS}/isolated": "2-3\n"}, "ok", "isolated: CPUs 2-3"),
        (
            "hypervisor",
            {"/proc/cpuinfo": "flags\t: fpu tsc\n", "/sys/hypervisor/type": None},
            "ok",
            "computer itself",
        ),
        ("hypervisor", {"/sys/hypervisor/type": "xen\n"}, "warn", "virtual machine"),
        (
            "swap",
            {"/proc/meminfo": "MemAvailable: 1 kB\nSwapTotal: 99999 kB\nSwapFree: 0 kB\n"},
            "warn",
            "97 of 97 MiB",
        ),
        (
            "memory",
            {"/proc/meminfo": "MemAvailable: 102400 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"},
            "bad",
            "only 100 MiB",
        ),
        ("memory", {"/proc/meminfo": "nonsense"}, "ok", "does not report it"),
    ],
)
async def test_looks(name: str, files: dict[str, str | None], level: str, found: str) -> None:
    check = await look(name, files)
    assert (check.level, found in check.found) == (level, True), check


@pytest.mark.parametrize(
    ("name", "processes", "level"),
    [
        ("guests", "init\nqemu-system-x86\n", "bad"),
        ("guests", "init\ncontainerd-shim\n", "warn"),
        ("guests", "init\nbash\n", "ok"),
        ("irqbalance", "init\nirqbalance\n", "warn"),
        ("irqbalance", "init\n", "ok"),
    ],
)
async def test_looks_at_processes(name: str, processes: str, level: str) -> None:
    assert (await look(name, processes=processes)).level == level


async def test_guests_started_by_tare_are_not_counted_as_other_guests(tmp_path: Path) -> None:
    program = tmp_path / "qemu-system-x86"
    shutil.copy("/bin/sleep", program)
    child = subprocess.Popen([program, "60"])
    try:
        own = "init\nqemu-system-x86\n"
        assert (await look("guests", processes=own)).level == "ok"
        assert (await look("guests", processes=f"{own}qemu-system-x86\n")).level == "bad"
    finally:
        child.kill()
        child.wait()


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ranges_name_exactly_the_cpus(cpus: set[int]) -> None:
    named: set[int] = set()
    for part in cpu_words(cpus).split(","):
        first, _, last = part.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == cpus


@pytest.mark.skipif(os.nice(0) != 0, reason="the tests themselves were begun with a niceness")
async def test_inherited_priority_is_reported() -> None:
    assert (await _priority_under([])).level == "ok"
    nicer = await _priority_under(["nice", "-n", "5"])
    assert (nicer.level, "nice 5" in nicer.found) == ("bad", True)
    batch = await _priority_under(["chrt", "--batch", "0"])
    assert (batch.level, "policy batch" in batch.found) == ("bad", True)


async def _priority_under(started_by: list[str]) -> Check:
    class Under(LocalHost):
        async def run(self, argv, **options):  # type: ignore[no-untyped-def]
            return await super().run([*started_by, *argv], **options)

    return await own_priority(Under())
