"""Count how often KVM guests boot under contention in a lab, for each way of emulating the lab.

One lab is booted for each round. In it, guests boot and power themselves off, one after another,
on a CPU that another guest keeps busy. A round ends after a number of boots, or when the lab
falls silent. Then the state of the emulated computer is collected: registers, interrupt
controllers and kernel stacks of the emulated host, and the stacks of its QEMU's threads.

usage: python -m scripts.lab_boots --work DIR [--boots N] [CONFIGURATION...]
       python -m scripts.lab_boots --work DIR --table

A configuration is named after its parts, for example ``10-2cpu-multi-npt``: the emulator's version,
the lab's CPUs, how QEMU runs them (multi or single thread) and whether nested paging is on (npt,
nonpt). ``7.2corrected`` is Tare's copy of 7.2 (tare.lab.corrected_qemu). Each boot's outcome is
appended to DIR/boots.jsonl. A configuration that has N boots there is not started
again, so you can interrupt the program and continue later.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tare.errors import HostFroze, TareError
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.images import cpio
from tare.images.cache import default_cache
from tare.images.guest_image import build_guest_image
from tare.lab.corrected_qemu import corrected_qemu
from tare.lab.host import Lab, lab_up
from tare.lab.options import CPU_MODEL, GIB, LabOptions
from tare.platforms.contract import Context
from tare.run.lifecycle.session import local_context

Outcome = Literal["ok", "fell", "frozen", "died"]

BOOTS = 20
ROUND = 60
"""The maximum number of guest boots in one lab, so that the lab itself is booted several times."""
GUEST_S = 600
"""Seconds that a guest may take: guests that booted took up to 88 s at a load of 13, and up to
250 s at a load of 21."""
PATIENCE_S = 120.0
SILENT_S = GUEST_S + PATIENCE_S
"""Seconds without an outcome after which the emulated host counts as frozen; it stops guests that
take too long by itself."""
GUEST_MEMORY = "160M"
FOLDER = "/root/boots"
CORRECTED = "corrected"
PROGRAMS = ("7.2", f"7.2{CORRECTED}", "10", f"10{CORRECTED}", "11", f"11{CORRECTED}")
CPUS = (2, 1)
THREADS = ("multi", "single")
PAGING = ("npt", "nonpt")

POWER_OFF = "#!/bin/busybox sh\n/bin/busybox echo guest-is-up\n/bin/busybox poweroff -f\n"
BUSY = "#!/bin/busybox sh\nwhile :; do :; done\n"

BOOT = f"""\
cd {FOLDER}
guest() {{ # usage: guest KIND NAME CPU SECONDS NICE
    timeout -s KILL "$4" nice -n "$5" taskset -c "$3" qemu-system-x86_64 -name "$2" \\
        -M q35,smm=off -nodefaults -no-user-config -display none -no-reboot -accel kvm -cpu host \\
        -m {GUEST_MEMORY} -kernel kernel -initrd "$1.cpio" \\
        -append "console=ttyS0 quiet panic=-1 noirqdebug no_timer_check cryptomgr.notests" \\
        -device virtio-serial-pci -device virtio-net-pci,netdev=net,romfile= -netdev user,id=net \\
        -device isa-serial,chardev=serial -chardev file,id=serial,path="$2.log" </dev/null
}}
busy() {{ # usage: busy CPU
    while :; do guest busy "busy-$1" "$1" 100000 5 >/dev/null 2>&1; done
}}
boots() {{ # usage: boots NAME CPU NUMBER
    for number in $(seq "$3"); do
        began=$(cut -d' ' -f1 /proc/uptime)
        rm -f "$1.log"
        guest off "$1" "$2" {GUEST_S} 0 >"$1.output" 2>&1
        code=$?
        grep -q guest-is-up "$1.log" && [ $code = 0 ] && outcome=ok || outcome=fell
        echo "boot $1 $outcome $began $(cut -d' ' -f1 /proc/uptime) $code"
        [ $outcome = ok ] || {{ tail -n 5 "$1.log" "$1.output" | tr -d '\\r' | sed 's/^/log /'; }}
    done
}}
last=$(($(nproc) - 1))
busy $last & sleep 1
# Two of three guests share the busy CPU; the emulators of all disturb one another.
boots first "$last" "$1" &
boots second "$last" "$1" &
boots third 0 "$1" &
sleep 100000
"""


@dataclass(frozen=True)
class Configuration:
    """One way of emulating a lab.

    Args:
        program: The version of the emulator.
        cpus: The lab's CPUs.
        threads: How QEMU runs them: ``multi`` (a thread for each) or ``single``.
        paging: ``npt`` if the emulated processor has nested paging, else ``nonpt``.
    """

    program: str
    cpus: int
    threads: str
    paging: str

    @property
    def name(self) -> str:
        """Its name in the results."""
        return f"{self.program}-{self.cpus}cpu-{self.threads}-{self.paging}"

    def wrapper(self, real: str) -> str:
        """Return a program that starts an emulator with this configuration's options."""
        changes = []
        if self.threads == "single":
            changes.append("tcg,thread=multi) each=tcg,thread=single;;")
        if self.paging == "nonpt":
            changes.append(f"{CPU_MODEL}) each={CPU_MODEL},-npt;;")
        if not changes:
            return f'#!/bin/sh\nexec {shlex.quote(real)} "$@"\n'
        return (
            '#!/bin/sh\nfor each in "$@"; do shift; case $each in '
            f'{" ".join(changes)} esac; set -- "$@" "$each"; done\n'
            f'exec {shlex.quote(real)} "$@"\n'
        )


CONFIGURATIONS = {
    each.name: each
    for each in itertools.starmap(Configuration, itertools.product(PROGRAMS, CPUS, THREADS, PAGING))
}


class Results:
    """The outcomes so far, with one JSON object on each line.

    Args:
        file: The file of the outcomes.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def all(self) -> list[dict[str, Any]]:
        """Return all outcomes, oldest first."""
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def counts(self) -> dict[str, Counter[str]]:
        """Return how often each configuration had each outcome."""
        found: dict[str, Counter[str]] = {}
        for each in self.all():
            found.setdefault(each["configuration"], Counter())[each["outcome"]] += 1
        return found

    def add(self, configuration: Configuration, outcome: Outcome, **facts: Any) -> None:
        """Append one outcome."""
        line = {
            "configuration": configuration.name,
            "outcome": outcome,
            "at": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "load": round(os.getloadavg()[0], 1),
            **facts,
        }
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{configuration.name}: {outcome} {facts}", flush=True)


def table(results: Results) -> str:
    """Return the counts as a Markdown table."""
    lines = [
        "| QEMU | CPUs | threads | nested paging | boots | ok | guest fell | froze | lab died |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    counts = results.counts()
    for name, each in CONFIGURATIONS.items():
        if found := counts.get(name):
            paging = "yes" if each.paging == "npt" else "no"
            cells = [
                *(each.program, each.cpus, each.threads, paging, found.total()),
                *(found[outcome] for outcome in ("ok", "fell", "frozen", "died")),
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


async def stacks_of(pid: int) -> str:
    """Return the states and stacks of a process's threads, as this computer shows them."""
    output = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(OSError):
            stat = (task / "stat").read_text().split()
            output.append(
                f"{task.name} {(task / 'comm').read_text().strip()} state {stat[2]} "
                f"user {stat[13]} system {stat[14]} "
                f"wchan {(task / 'wchan').read_text()} syscall {(task / 'syscall').read_text()}"
            )
    if shutil.which("gdb"):
        gdb = await asyncio.create_subprocess_exec(
            *("gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                output.append((await gdb.communicate())[0].decode(errors="replace"))
        if gdb.returncode is None:
            gdb.kill()
    return "\n".join(output)


async def human(lab: Lab, command: str) -> str:
    """Return the answer of the lab's QEMU to a command of its human monitor."""
    try:
        async with asyncio.timeout(20):
            output = await lab.outer.monitor.execute(
                "human-monitor-command", **{"command-line": command}
            )
    except (TareError, OSError, TimeoutError) as error:
        return f"(no answer: {error})"
    return str(output).replace("\r", "")


async def collect(lab: Lab, folder: Path) -> None:
    """Write the state of a silent lab to files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    looks = ["info status", "info cpus", "info registers -a", "info pic", "info irq"]
    looks += [f"info lapic {number}" for number in range(lab.options.cpus)]
    for turn in range(3):
        output = [f"== {look}\n{await human(lab, look)}" for look in looks]
        (folder / f"monitor-{turn}").write_text("\n".join(output))
        await asyncio.sleep(2)
    (folder / "threads").write_text(await stacks_of(lab.pid))
    with contextlib.suppress(OSError):
        shutil.copy(lab.places.errors, folder / "errors")
    # A break on the serial console and then a letter are the magic SysRq keys of Linux.
    for key in "lw":
        with contextlib.suppress(TareError, OSError, TimeoutError):
            async with asyncio.timeout(20):
                await lab.outer.monitor.execute("chardev-send-break", id="console")
                lab.outer.type(key)
                await asyncio.sleep(5)
    shutil.copy(lab.places.log, folder / "console")
    output = [f"== {look}\n{await human(lab, look)}" for look in looks]
    (folder / "monitor-after-keys").write_text("\n".join(output))


async def furnish(lab: Lab, context: Context, busybox: Path, folder: Path) -> None:
    """Copy the guests' kernel and archives to the lab."""
    image = await build_guest_image(
        context.builder,
        "cloud",
        needs=frozenset({"virtio"}),
        agent=context.agent,
        cache=context.cache,
    )
    await lab.host.run(["mkdir", "-p", FOLDER], timeout_s=PATIENCE_S)
    await lab.host.put(image.boot_kernel, f"{FOLDER}/kernel")
    program = busybox.read_bytes()
    for name, init in (("off", POWER_OFF), ("busy", BUSY)):
        archive = cpio.archive(
            [
                cpio.file("init", init.encode(), executable=True),
                cpio.file("bin/busybox", program, executable=True),
                cpio.character_device("dev/console", 5, 1),
            ]
        )
        (folder / name).write_bytes(archive)
        await lab.host.put(folder / name, f"{FOLDER}/{name}.cpio")


async def boot_guests(
    configuration: Configuration, lab: Lab, results: Results, folder: Path, boots: int
) -> None:
    """Boot guests in a lab until there were ``boots`` boots, or until the lab is silent."""
    process = await lab.host.start(
        ["sh", "-c", BOOT, "sh", str(boots)], log=Path(f"{FOLDER}/errors")
    )
    done = 0
    while done < boots:
        line = b""
        with contextlib.suppress(TareError, TimeoutError, OSError):
            async with asyncio.timeout(SILENT_S):
                line = await lab.while_alive(process.stdout.readline())
        words = line.decode(errors="replace").split()
        if words[:1] == ["boot"]:
            done += 1
            outcome: Outcome = "ok" if words[2] == "ok" else "fell"
            took = round(float(words[4]) - float(words[3]), 1)
            results.add(configuration, outcome, seconds=took, code=int(words[5]))
        elif words[:1] == ["log"]:
            print(f"    {line.decode(errors='replace').rstrip()}", flush=True)
        else:
            kept = folder / f"{configuration.name}-{time.strftime('%m%d-%H%M%S')}"
            fault = lab.died.result() if lab.died.done() else None
            # If the lab froze, its connection is lost, but its QEMU still answers.
            died = "" if fault is None or isinstance(fault, HostFroze) else fault.message
            if died:
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copy(lab.places.log, kept / "console")
                shutil.copy(lab.places.errors, kept / "errors")
            else:
                await collect(lab, kept)
            results.add(
                configuration,
                "died" if died else "frozen",
                reason=fault.message if fault is not None else f"silent for {SILENT_S:g} s",
                kept=str(kept),
                after=done,
            )
            return


async def one_round(
    configuration: Configuration, program: str, results: Results, work: Path, boots: int
) -> None:
    """Boot a lab, and guests in it."""
    with (
        tempfile.TemporaryDirectory(prefix="tare-boots-") as place,
        Ledger(Path(place) / "ledger.jsonl") as ledger,
    ):
        # Its QEMU runs as another user, which needs access to the program.
        Path(place).chmod(0o755)
        wrapper = Path(place) / "qemu"
        wrapper.write_text(configuration.wrapper(program))
        wrapper.chmod(0o755)
        options = LabOptions(
            cpus=configuration.cpus,
            memory=2 * GIB,
            qemu=str(wrapper),
            kernel_arguments=(
                "sysrq_always_enabled=1",
                # The console then shows the stacks of stuck CPUs, not only their names.
                "ignore_loglevel",
                "rcupdate.rcu_cpu_stall_timeout=20",
                "softlockup_panic=0",
            ),
        )
        context = local_context(ledger)
        try:
            lab = await lab_up(context, options, Path(place) / "tare-lab", tell=print)
        except TareError as fault:
            results.add(configuration, "died", reason=f"the lab did not boot: {fault}")
            return
        async with lab:
            try:
                await furnish(lab, context, lab.image.busybox, Path(place))
                await boot_guests(configuration, lab, results, work, boots)
            except TareError as fault:
                kept = work / f"{configuration.name}-{time.strftime('%m%d-%H%M%S')}"
                if not lab.died.done():
                    await collect(lab, kept)
                results.add(configuration, "frozen", reason=str(fault), kept=str(kept))


async def programs(named: Sequence[str]) -> Mapping[str, str]:
    """Return the emulators by version: those of ``--qemu VERSION=PROGRAM``, and Tare's copies."""
    found = {PROGRAMS[0]: shutil.which("qemu-system-x86_64") or ""}
    for each in named:
        version, _, program = each.partition("=")
        found[version] = program
    found = {version: program for version, program in found.items() if program}
    for version, program in list(found.items()):
        copy = await corrected_qemu(LocalHost(), Path(program), default_cache())
        if copy is not None:
            found[version + CORRECTED] = str(copy.program)
    return found


def due(
    names: Sequence[str], results: Results, known: Mapping[str, str], boots: int
) -> Iterator[tuple[Configuration, int]]:
    """Yield the next configuration and its number of boots, until none is left."""
    while True:
        counts = results.counts()
        left = [
            (CONFIGURATIONS[name], boots - counts.get(name, Counter()).total())
            for name in names
            if CONFIGURATIONS[name].program in known
        ]
        left = [(each, missing) for each, missing in left if missing > 0]
        if not left:
            return
        # Start with the fewest boots, so that an interrupted comparison is balanced.
        configuration, missing = max(left, key=lambda each: each[1])
        yield configuration, min(missing, ROUND)


def main(argv: list[str] | None = None) -> int:
    """Boot all guests that are left, print the counts, and return 0."""
    parser = argparse.ArgumentParser(prog="python -m scripts.lab_boots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help="by default all")
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--boots", type=int, default=BOOTS, help="of each configuration")
    parser.add_argument("--qemu", action="append", default=[], metavar="VERSION=PROGRAM")
    parser.add_argument("--table", action="store_true", help="print the counts, and boot nothing")
    wanted = parser.parse_args(argv)
    if unknown := [name for name in wanted.names if name not in CONFIGURATIONS]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(CONFIGURATIONS)}")
    wanted.work.mkdir(parents=True, exist_ok=True)
    results = Results(wanted.work / "boots.jsonl")
    if not wanted.table:
        known = asyncio.run(programs(wanted.qemu))
        names = wanted.names or list(CONFIGURATIONS)
        for configuration, boots in due(names, results, known, wanted.boots):
            program = known[configuration.program]
            asyncio.run(one_round(configuration, program, results, wanted.work, boots))
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
