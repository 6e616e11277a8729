"""Exits of KVM's virtual machines on a host: counts and times by reason, added up in the kernel.

``kvm:kvm_exit`` and ``kvm:kvm_entry`` mark when a vCPU's thread leaves the guest and returns to it.
The kernel's histogram triggers subtract the two times and add up the differences by thread and
reason, so that no record is written per exit. Source: the kernel's
Documentation/trace/histogram.rst.

A kernel without such triggers still counts some classes of exits, without time, in
``/sys/kernel/debug/kvm`` (virt/kvm/kvm_main.c, ``kvm_create_vm_debugfs``).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.trace.tracefs import (
    NoTracing,
    instance_in,
    kernel_files,
    synthetic_event,
    tracing_root,
)

MOST_THREADS = 64
"""The limit of threads in a filter; the kernel refuses filters of more than some hundred terms."""
TOTAL = "exits"
CLASSES = (
    TOTAL,
    "halt_exits",
    "hypercalls",
    "io_exits",
    "irq_exits",
    "irq_window_exits",
    "mmio_exits",
    "nmi_window_exits",
    "request_irq_exits",
    "signal_exits",
)
"""Counters of exits in debugfs. The classes overlap, and do not cover all exits."""
POLLED_NS = ("halt_poll_success_ns", "halt_poll_fail_ns")
"""Counters of the time in which the host's kernel waited busily for a vCPU that had halted, from
Linux 5.8 on (Documentation/virt/kvm/halt-polling.rst)."""
_ARM_TRAP = 2
ARM_OTHER = 0x100
"""Added to the exception codes of arm64 other than traps, such as an interrupt (asm/kvm_asm.h)."""
_EXIT = "events/kvm/kvm_exit"
_DONE_S = 30.0
_ENTRY_LINE = re.compile(r"^\{([^{}]*)\}\s*(.*)$", re.MULTILINE)
_VALUE = re.compile(r"\b([a-z_][a-z0-9_]*):\s*(\d{1,20})\b")
_TOTALS = re.compile(r"^\s+(Hits|Dropped):\s*(\d{1,20})\s*$", re.MULTILINE)
_DECLARED = re.compile(r"^\s*field:(?P<type>[a-z_0-9 ]+?) (?P<name>[a-z_0-9]+);", re.MULTILINE)
_NOW = re.compile(r"^now ts:\s*(\d{1,18}\.\d{1,9})$", re.MULTILINE)
_ATTACH = """
cd "$1" || exit
printf '%s\\n' "$3" >"events/synthetic/$2/trigger" &&
printf '%s\\n' "$4" >events/kvm/kvm_exit/trigger &&
printf '%s\\n' "$5" >events/kvm/kvm_entry/trigger || { tail -n 3 error_log >&2; exit 1; }
grep '^now ts' per_cpu/cpu0/stats
"""
# Opening a file of triggers for writing removes those that it had. One that is referred to
# cannot be removed, so the entry's go first.
_DETACH = """
cd "$1" || exit
grep '^now ts' per_cpu/cpu0/stats
: >events/kvm/kvm_entry/trigger
: >events/kvm/kvm_exit/trigger
cat "events/synthetic/$2/hist"
: >"events/synthetic/$2/trigger"
"""


@dataclass(frozen=True)
class Bucket:
    """One line of a histogram: the values of its keys, and its sums."""

    keys: Mapping[str, int]
    sums: Mapping[str, int]


@dataclass(frozen=True)
class Histogram:
    """A histogram of the kernel: its buckets, and the number of events that found no room."""

    buckets: tuple[Bucket, ...]
    dropped: int


def parse_histogram(text: str) -> Histogram:
    """Parse the file ``hist`` of an event with one histogram trigger.

    Raises:
        ValueError: The text is not a histogram.
    """
    totals = dict(_TOTALS.findall(text))
    if "Hits" not in totals or "Dropped" not in totals:
        raise ValueError("not a histogram of the kernel")
    buckets = []
    for inside, rest in _ENTRY_LINE.findall(text):
        keys, sums = (
            {name: int(value) for name, value in _VALUE.findall(part)} for part in (inside, rest)
        )
        if "hitcount" not in sums:
            raise ValueError(f"a bucket without a count: {inside.strip()[:60]}")
        buckets.append(Bucket(keys, sums))
    hits = sum(bucket.sums["hitcount"] for bucket in buckets)
    if hits != int(totals["Hits"]) - int(totals["Dropped"]) and hits != int(totals["Hits"]):
        raise ValueError(f"buckets with {hits} events of {totals['Hits']}")
    return Histogram(tuple(buckets), int(totals["Dropped"]))


def parse_types(text: str) -> dict[str, str]:
    """Return the C types of an event's fields, from its file ``format``."""
    return {each["name"]: each["type"] for each in _DECLARED.finditer(text)}


@dataclass(frozen=True)
class ExitCount:
    """Exits of one vCPU with one reason.

    Args:
        thread: The vCPU's thread on the host.
        isa: The processor's architecture: ``vmx``, ``svm`` or ``arm64``.
        reason: The reason's number in that architecture.
        count: The number of exits.
        seconds: The time from these exits until the guest ran again.
    """

    thread: int
    isa: str
    reason: int
    count: int
    seconds: float


@dataclass(frozen=True)
class Exits:
    """Exits that were recorded.

    Args:
        counts: The exits by vCPU and reason.
        seconds: The duration of the recording.
        dropped: The number of exits that found no room in the kernel's histogram.
        run_delay_s: The time during which vCPUs were ready but another thread ran, if the recorder
            measured it; None otherwise. In that case it is not part of the exits' time.
        waited_s: The part of the exits' time in which vCPUs had no CPU, because another domain
            worked for them, as a device model does; without exits of idle guests.
    """

    counts: tuple[ExitCount, ...] = ()
    seconds: float = 0.0
    dropped: int = 0
    run_delay_s: float | None = None
    waited_s: float = 0.0

    def __add__(self, other: Exits) -> Exits:
        """Combine both recordings."""
        found: dict[tuple[int, str, int], ExitCount] = {}
        for each in (*self.counts, *other.counts):
            key = (each.thread, each.isa, each.reason)
            had = found.get(key, ExitCount(*key, 0, 0.0))
            found[key] = ExitCount(*key, had.count + each.count, had.seconds + each.seconds)
        return Exits(
            tuple(found[key] for key in sorted(found)),
            self.seconds + other.seconds,
            self.dropped + other.dropped,
            _sum(self.run_delay_s, other.run_delay_s),
            self.waited_s + other.waited_s,
        )

    @property
    def total(self) -> int:
        """The number of all exits."""
        return sum(each.count for each in self.counts)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)


@dataclass(frozen=True)
class _Layout:
    """The reason's fields in this kernel's event: x86 has two architectures, arm64 one."""

    fields: tuple[str, ...]
    isa: str = ""

    def reason_of(self, keys: Mapping[str, int]) -> int:
        """Return a bucket's reason; on arm64, interrupts and errors come after the classes."""
        code = keys.get(self.fields[-1], 0)
        if self.isa == "arm64" and (kind := keys.get("ret", _ARM_TRAP)) != _ARM_TRAP:
            return ARM_OTHER + kind
        return code

    def isa_of(self, keys: Mapping[str, int]) -> str:
        """Return the architecture of a bucket (KVM_ISA_VMX, KVM_ISA_SVM: kvm/trace.h)."""
        return self.isa or {1: "vmx", 2: "svm"}.get(keys.get("isa", 0), "unknown")


def _layout_of(types: Mapping[str, str]) -> _Layout:
    if {"isa", "exit_reason"} <= types.keys():
        return _Layout(("isa", "exit_reason"))
    if {"ret", "esr_ec"} <= types.keys():
        # Only a trap has an exception class (arch/arm64/kvm/trace_arm.h).
        return _Layout(("ret", "esr_ec"), "arm64")
    raise NoTracing("this kernel's kvm_exit has no reason that Tare knows")


@asynccontextmanager
async def exit_recorder(host: Host, ledger: Ledger) -> AsyncIterator[ExitRecorder]:
    """Create a recorder of a host's exits, and remove all its traces at the end.

    Raises:
        NoTracing: The host cannot record exits; the text states the reason.
    """
    async with tracing_root(host, ledger) as root:
        if not await host.exists(root / _EXIT):
            raise NoTracing("the host's kernel has no KVM, or its module is not loaded")
        if not await host.exists(root / _EXIT / "hist"):
            raise NoTracing("this kernel was built without histograms (CONFIG_HIST_TRIGGERS)")
        types = parse_types((await host.read(root / _EXIT / "format")).decode())
        layout = _layout_of(types)
        # The kernel compares types by their names.
        declared = "; ".join(f"{types[name]} {name}" for name in layout.fields)
        fields = f"{types['common_pid']} thread; {declared}; u64 ns"
        async with (
            synthetic_event(host, ledger, root, fields) as event,
            instance_in(host, ledger, root) as instance,
        ):
            yield ExitRecorder(host, instance, event, layout)


class ExitRecorder:
    """A recorder of exits of some vCPUs; created by :func:`exit_recorder`."""

    def __init__(self, host: Host, instance: Path, event: str, layout: _Layout) -> None:
        self._host = host
        self._instance = instance
        self._event = event
        self._layout = layout
        self._began = 0.0

    async def begin(self, threads: Sequence[int]) -> None:
        """Start recording.

        Args:
            threads: The threads of the vCPUs.

        Raises:
            NoTracing: The kernel refuses.
        """
        if len(threads) > MOST_THREADS:
            raise NoTracing(f"{len(threads)} vCPUs are more than the {MOST_THREADS} of one filter")
        only = " || ".join(f"common_pid == {thread}" for thread in threads)
        fields = self._layout.fields
        saved = ",".join(f"saved_{name}={name}" for name in fields)
        passed = ",".join(f"$saved_{name}" for name in fields)
        match = f"onmatch(kvm.kvm_exit).trace({self._event},common_pid,{passed},$ns)"
        triggers = (
            f"hist:keys=thread,{','.join(fields)}:vals=ns:size=4096",
            f"hist:keys=common_pid:since=common_timestamp,{saved} if {only}",
            f"hist:keys=common_pid:ns=common_timestamp-$since:{match} if {only}",
        )
        self._began = self._time_in(await self._sh(_ATTACH, *triggers))

    async def end(self) -> Exits:
        """Stop recording, and return the recorded exits.

        Raises:
            NoTracing: The histogram cannot be read.
        """
        text = await self._sh(_DETACH)
        ended = self._time_in(text)
        try:
            found = parse_histogram(text)
        except ValueError as error:
            raise NoTracing(f"the kernel's histogram cannot be read: {error}") from error
        counts = [
            ExitCount(
                bucket.keys.get("thread", 0),
                self._layout.isa_of(bucket.keys),
                self._layout.reason_of(bucket.keys),
                bucket.sums["hitcount"],
                bucket.sums.get("ns", 0) * 1e-9,
            )
            for bucket in found.buckets
        ]
        return Exits((), ended - self._began, found.dropped) + Exits(tuple(counts))

    async def _sh(self, script: str, *words: str) -> str:
        argv = ["sh", "-c", script, "sh", str(self._instance), self._event, *words]
        done = await self._host.run(argv, timeout_s=_DONE_S)
        if not done.ok:
            raise NoTracing(f"the kernel's histograms cannot be set up: {done.words()}")
        return done.stdout.decode(errors="replace")

    def _time_in(self, text: str) -> float:
        found = _NOW.search(text)
        if found is None:
            raise NoTracing("the kernel's tracer does not show its time")
        return float(found[1])


@asynccontextmanager
async def exit_counters(
    host: Host, ledger: Ledger, thread: int
) -> AsyncIterator[ExitCounters | None]:
    """Yield the kernel's counters of the virtual machine of a thread; None if it shows none.

    Raises:
        NoTracing: debugfs cannot be read.
    """
    async with kernel_files(host, ledger, "debugfs") as root:
        lines = await host.first_lines([f"/proc/{thread}/status"])
        status = (await host.read(f"/proc/{thread}/status")).decode() if lines else ""
        group = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
        counters = ExitCounters(host, root, int(group[1])) if group else None
        yield counters if counters is not None and await counters.read() else None


class ExitCounters:
    """The kernel's own counters of a virtual machine's exits, in debugfs."""

    def __init__(self, host: Host, root: Path, pid: int) -> None:
        self._host = host
        self._patterns = [f"{root}/kvm/{pid}-*/{name}" for name in (*CLASSES, *POLLED_NS)]

    async def read(self) -> dict[str, int]:
        """Return the current counters; empty if there are none."""
        lines = await self._host.first_lines(self._patterns)
        found: dict[str, int] = {}
        for path, text in lines.items():
            if text.isdecimal():
                name = PurePosixPath(path).name
                found[name] = found.get(name, 0) + int(text)
        return found


async def runs_on_kvm(host: Host, thread: int) -> bool:
    """Return whether a thread's process has vCPUs of KVM, which are files without a name."""
    listed = await host.run(["ls", "-l", f"/proc/{thread}/fd"], timeout_s=_DONE_S)
    return b"anon_inode:kvm-vcpu" in listed.stdout
