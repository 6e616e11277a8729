"""Checks, before the first block, for properties of the host that could disturb a measurement."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.errors import TareError
from tare.events import Check
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import LOCAL
from tare.hosts.processes import stat_fields
from tare.hosts.realtime import FAIR_SERVERS, RT_RUNTIME
from tare.study.planning.host_cpus import cpu_words

CPUS = "/sys/devices/system/cpu"
CLOCKS = "/sys/devices/system/clocksource/clocksource0"
SAMPLE_S = 0.25
MIB = 1 << 20
GUESTS = re.compile(
    r"qemu|kvm$|firecracker|cloud-hyperviso|vmware-vmx|VBoxHeadless|crosvm|xl$|bhyve"
)
CONTAINERS = re.compile(r"containerd-shim|conmon|lxc-start|runsc-sandbox")

Look = Callable[[Host], Awaitable[Check]]


@dataclass(frozen=True)
class LoadWatch:
    """The CPUs' counters at some moment, and the CPU time that Tare itself had used by then.

    Args:
        times: The first eight counters over all CPUs in ``/proc/stat``, in ticks.
        own_s: CPU seconds that this process and its children, running or ended, had used.
        began: ``time.monotonic()`` at that moment.
    """

    times: tuple[int, ...]
    own_s: float
    began: float


async def watch_load(host: Host) -> LoadWatch:
    """Begin to watch the load of a host, so that other checks can run in the meantime."""
    return LoadWatch(
        _times((await host.read("/proc/stat")).decode()), _own_cpu_s(host), time.monotonic()
    )


def _own_cpu_s(host: Host) -> float:
    if host.name != LOCAL:
        return 0.0  # On a remote host, Tare itself uses almost no CPU time.
    return sum(os.times()[:4]) + sum(map(_cpu_s, _children(host)))


def _children(host: Host) -> list[Path]:
    """Return the /proc folders of the processes that Tare itself started here, such as a lab."""
    if host.name != LOCAL:
        return []
    pids: list[str] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += thread.read_text().split()
    return [Path("/proc") / pid for pid in pids]


def _cpu_s(process: Path) -> float:
    """Return the CPU seconds of a process; 0 once it has ended, as Tare's own then include them.

    Source: times(2).
    """
    with contextlib.suppress(OSError):
        # Fields 14 and 15 are user and system time, proc(5).
        fields = stat_fields((process / "stat").read_bytes())
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


async def preflight(
    host: Host,
    output: Path | None = None,
    watch: LoadWatch | None = None,
    here: Host | None = None,
) -> tuple[Check, ...]:
    """Check everything about a host that could disturb or skew a measurement.

    Args:
        host: The host; nothing on it is changed.
        output: The run's folder, whose free space is checked; None: it is not.
        watch: The start of the load measurement; None: measure for a quarter of a second now.
        here: This computer, which has the output, if the host is another one.

    Returns:
        One check for each property: the finding, its severity, and a command to run about it.
    """
    # This runs alone and first, so that it does not count the commands of the other checks.
    begun = watch or await watch_load(host)
    load = await _checked("load", _load(host, begun))
    looks = [_checked(name, look(host)) for name, look in _LOOKS.items()]
    if output is not None:
        looks.append(_checked("disk", _disk(here or host, output)))
    return (load, *await asyncio.gather(*looks))


async def _checked(name: str, look: Awaitable[Check]) -> Check:
    try:
        return await look
    except (OSError, TareError, ValueError, LookupError) as error:
        return Check(name=name, level="ok", found=f"this host does not report it ({error})")


async def _read(host: Host, path: str | Path) -> str | None:
    try:
        return (await host.read(path)).decode(errors="replace").strip()
    except OSError:
        return None


async def _governor(host: Host) -> Check:
    found: dict[str, list[int]] = {}
    for cpu in host.topology().online:
        governor = await _read(host, f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor")
        if governor:
            found.setdefault(governor, []).append(cpu)
    if not found:
        return Check(name="governor", level="ok", found="no frequency scaling is visible here")
    text = ", ".join(f"{name} on CPUs {cpu_words(cpus)}" for name, cpus in found.items())
    if set(found) == {"performance"}:
        return Check(name="governor", level="ok", found=text)
    hint = f"echo performance | tee {CPUS}/cpu*/cpufreq/scaling_governor"
    return Check(name="governor", level="warn", found=text, hint=hint)


async def _turbo(host: Host) -> Check:
    for path, on, off in (
        (f"{CPUS}/intel_pstate/no_turbo", "0", "1"),
        (f"{CPUS}/cpufreq/boost", "1", "0"),
    ):
        value = await _read(host, path)
        if value == on:
            text = "on: the clock rate depends on how many cores are busy and how warm they are"
            return Check(name="turbo", level="warn", found=text, hint=f"echo {off} > {path}")
        if value is not None:
            return Check(name="turbo", level="ok", found="off")
    return Check(name="turbo", level="ok", found="no control of it is visible here")


async def _smt(host: Host) -> Check:
    if await _read(host, f"{CPUS}/smt/active") == "1":
        text = "on: hardware threads of one core slow each other down"
        return Check(name="smt", level="warn", found=text, hint=f"echo off > {CPUS}/smt/control")
    return Check(name="smt", level="ok", found="off, or there is none")


async def _load(host: Host, watch: LoadWatch) -> Check:
    average = (await host.read("/proc/loadavg")).decode().split()[0]
    await asyncio.sleep(max(0.0, SAMPLE_S - (time.monotonic() - watch.began)))
    now = _times((await host.read("/proc/stat")).decode())
    spent = [max(0, after - before) for before, after in zip(watch.times, now, strict=True)]
    own = (_own_cpu_s(host) - watch.own_s) * os.sysconf("SC_CLK_TCK")
    # user nice system idle iowait irq softirq steal, proc(5): idle and iowait are not busy.
    idle = spent[3] + spent[4]
    busy = min(max((sum(spent) - idle - own) / (sum(spent) or 1), 0.0), 1.0)
    text = f"{busy:.0%} of the CPUs' time is in use; load average {average}"
    if busy < 0.1:
        return Check(name="load", level="ok", found=text)
    return Check(name="load", level="bad" if busy > 0.4 else "warn", found=text, hint="top -o %CPU")


async def _steal(host: Host) -> Check:
    times = _times((await host.read("/proc/stat")).decode())
    share = times[7] / (sum(times) or 1)
    text = f"{share:.3%} of the CPUs' time since boot was taken by a hypervisor below"
    # The kernel also reports zero if no hypervisor reports steal time to it.
    text += "" if share > 0 else ", as far as the kernel counts it"
    if share < 0.001:
        return Check(name="steal", level="ok", found=text)
    return Check(name="steal", level="warn", found=text, hint="vmstat 1")


def _times(stat: str) -> tuple[int, ...]:
    """Return the first eight counters, in ticks, of the line over all CPUs in /proc/stat."""
    return tuple(int(field) for field in stat.splitlines()[0].split()[1:9])


async def _guests(host: Host) -> Check:
    names = await _processes(host)
    for child in _children(host):
        with contextlib.suppress(OSError, ValueError):
            names.remove((child / "comm").read_text().strip())
    guests = [name for name in names if GUESTS.search(name)]
    containers = [name for name in names if CONTAINERS.search(name)]
    if not guests and not containers:
        return Check(name="guests", level="ok", found="no other guest or container was seen")
    text = f"{len(guests)} other guests and {len(containers)} containers run here: "
    text += ", ".join(sorted({*guests, *containers}))
    hint = "ps -eo pid,user,comm,args | grep -E 'qemu|kvm|firecracker|shim|conmon'"
    return Check(name="guests", level="bad" if guests else "warn", found=text, hint=hint)


POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
"""Names of the kernel's scheduling policies by number, see sched(7)."""
NICE, POLICY = 16, 38
"""Indices of fields 19 and 41 of /proc/PID/stat, proc(5), counted from the first after the name."""


async def own_priority(host: Host) -> Check:
    """Check the nice value and the policy that processes which Tare starts on a host inherit.

    A thread's nice value applies only within its control group (sched(7), "The autogroup feature").
    It slows down a bare machine, which shares its group with other work, but no container.
    """
    shown = await host.run(["cat", "/proc/self/stat"], timeout_s=10)
    fields = stat_fields(shown.stdout)
    nice, policy = int(fields[NICE]), int(fields[POLICY])
    if not nice and not policy:
        return Check(name="priority", level="ok", found="as usual: nice 0, policy other")
    text = (
        f"Tare was started at nice {nice}, policy {POLICIES.get(policy, policy)}, which a bare "
        "machine inherits and a container does not: on busy CPUs they do not get the same"
    )
    hint = "renice -n 0 $$; chrt -o -p 0 $$; then start Tare again, without nice or chrt"
    return Check(name="priority", level="bad", found=text, hint=hint)


async def _irqbalance(host: Host) -> Check:
    if "irqbalance" in await _processes(host):
        text = "runs: it moves interrupts between CPUs while Tare measures"
        return Check(name="irqbalance", level="warn", found=text, hint="systemctl stop irqbalance")
    return Check(name="irqbalance", level="ok", found="does not run")


async def _processes(host: Host) -> list[str]:
    listed = await host.run(["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null"], timeout_s=10)
    return listed.stdout.decode(errors="replace").split("\n")


async def _mitigations(host: Host) -> Check:
    folder = f"{CPUS}/vulnerabilities"
    listed = await host.run(["sh", "-c", f"grep -s . {folder}/*"], timeout_s=10)
    lines = listed.stdout.decode(errors="replace").splitlines()
    states = dict(line.removeprefix(f"{folder}/").split(":", 1) for line in lines)
    mitigated = sorted(name for name, state in states.items() if "Mitigation" in state)
    vulnerable = sorted(name for name, state in states.items() if state.startswith("Vulnerable"))
    parts = [
        f"{len(mitigated)} in force ({', '.join(mitigated)})" if mitigated else "none in force"
    ]
    if vulnerable:
        parts.append(f"open: {', '.join(vulnerable)}")
    return Check(name="mitigations", level="ok", found="; ".join(parts))


async def _thp(host: Host) -> Check:
    value = await _read(host, "/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", value or "")
    text = f"transparent huge pages: {chosen[1]}" if chosen else "no transparent huge pages"
    return Check(name="thp", level="ok", found=text)


async def _swap(host: Host) -> Check:
    memory = await _meminfo(host)
    total, used = memory["SwapTotal"], memory["SwapTotal"] - memory["SwapFree"]
    if not total:
        return Check(name="swap", level="ok", found="none")
    text = f"{used // MIB} of {total // MIB} MiB in use"
    if used < 16 * MIB:
        return Check(name="swap", level="ok", found=text)
    return Check(name="swap", level="warn", found=text, hint="swapoff -a && swapon -a")


async def _memory(host: Host) -> Check:
    free = (await _meminfo(host))["MemAvailable"] // MIB
    if free >= 1024:
        return Check(name="memory", level="ok", found=f"{free} MiB available")
    level, hint = ("bad" if free < 256 else "warn"), "ps -eo rss,pid,comm --sort -rss | head"
    return Check.model_validate(
        {"name": "memory", "level": level, "found": f"only {free} MiB available", "hint": hint}
    )


async def _meminfo(host: Host) -> dict[str, int]:
    """Return /proc/meminfo in bytes."""
    lines = (await host.read("/proc/meminfo")).decode().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


async def _rt_throttling(host: Host) -> Check:
    value = await _read(host, RT_RUNTIME)
    if value is None or int(value) < 0:
        return Check(name="rt-throttling", level="ok", found="off")
    text = f"real-time threads may run {value} µs of each period"
    writable = await host.run(["test", "-w", str(RT_RUNTIME)])
    if writable.ok:
        text += "; Tare turns this off while real-time work runs, and gives it back"
        return Check(name="rt-throttling", level="ok", found=text)
    hint = "sudo sysctl -w kernel.sched_rt_runtime_us=-1"
    return Check(
        name="rt-throttling", level="warn", found=f"{text}; Tare may not change it", hint=hint
    )


async def _fair_server(host: Host) -> Check:
    """Check for the deadline server that Linux 6.12 introduced for ordinary threads.

    It takes up to 50 ms per second from a real-time thread while ordinary ones wait for its CPU.
    """
    release = (await host.read("/proc/sys/kernel/osrelease")).decode()
    major, minor = re.findall(r"\d+", release)[:2]
    if (int(major), int(minor)) < (6, 12):
        return Check(name="fair-server", level="ok", found="this kernel has none")
    takes = "it may take 50 ms a second from a real-time thread while others wait for its CPU"
    server = FAIR_SERVERS / f"cpu{host.topology().online[0]}" / "runtime"
    if not await host.exists(server):
        hint = "mount -t debugfs none /sys/kernel/debug"
        text = f"on, and Tare cannot reach it to turn it off: {takes}"
        return Check(name="fair-server", level="warn", found=text, hint=hint)
    try:
        value = int(await host.read(server))
    except PermissionError:
        text = f"on, and this kernel refuses (lockdown) to let it be turned off: {takes}"
        hint = "cat /sys/kernel/security/lockdown"
        return Check(name="fair-server", level="warn", found=text, hint=hint)
    if value == 0:
        return Check(name="fair-server", level="ok", found="off")
    text = "on; Tare turns it off while real-time work runs, and gives it back"
    return Check(name="fair-server", level="ok", found=text)


async def _hypervisor(host: Host) -> Check:
    cpuinfo = await _read(host, "/proc/cpuinfo") or ""
    kind = await _read(host, "/sys/hypervisor/type")
    if not kind and not re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE):
        return Check(name="hypervisor", level="ok", found="none below: this is the computer itself")
    detected = ""
    if await host.exists("/usr/bin/systemd-detect-virt"):
        completed = await host.run(["/usr/bin/systemd-detect-virt", "--vm"], timeout_s=5)
        detected = completed.stdout.decode().strip() if completed.ok else ""
    maker = await _read(host, "/sys/class/dmi/id/sys_vendor")
    name = detected or kind or maker or "of an unknown make"
    text = (
        f"this host is itself a virtual machine ({name}): the hypervisor under it disturbs "
        "all arms alike, and its cost is part of the bare host's figures"
    )
    return Check(
        name="hypervisor", level="warn", found=text, hint="lscpu | grep -i -E 'virt|hyperv'"
    )


async def _clocksource(host: Host) -> Check:
    current = await _read(host, f"{CLOCKS}/current_clocksource")
    available = (await _read(host, f"{CLOCKS}/available_clocksource") or "").split()
    if current in (None, "tsc", "arch_sys_counter"):
        return Check(name="clocksource", level="ok", found=current or "not reported")
    hint = (
        f"echo tsc > {CLOCKS}/current_clocksource" if "tsc" in available else "dmesg | grep -i tsc"
    )
    return Check(name="clocksource", level="warn", found=f"{current}, not the TSC", hint=hint)


async def _isolation(host: Host) -> Check:
    parts = []
    for name in ("isolated", "nohz_full"):
        value = await _read(host, f"{CPUS}/{name}")
        if value and value != "(null)":
            parts.append(f"{name}: CPUs {value}")
    return Check(name="isolation", level="ok", found="; ".join(parts) or "no CPU is isolated")


async def _disk(host: Host, output: Path) -> Check:
    whole = output.absolute()
    there = next(path for path in (whole, *whole.parents) if path.exists())
    completed = await host.run(["df", "-Pk", "--", str(there)], timeout_s=10)
    free = int(completed.stdout.decode().splitlines()[-1].split()[3]) // 1024
    text = f"{free} MiB free for {output}"
    if free >= 1024:
        return Check(name="disk", level="ok", found=text)
    return Check(
        name="disk", level="bad" if free < 100 else "warn", found=text, hint=f"df -h {there}"
    )


_LOOKS: Mapping[str, Look] = {
    "priority": own_priority,
    "governor": _governor,
    "turbo": _turbo,
    "smt": _smt,
    "steal": _steal,
    "guests": _guests,
    "hypervisor": _hypervisor,
    "mitigations": _mitigations,
    "thp": _thp,
    "swap": _swap,
    "memory": _memory,
    "rt-throttling": _rt_throttling,
    "fair-server": _fair_server,
    "clocksource": _clocksource,
    "isolation": _isolation,
    "irqbalance": _irqbalance,
}
