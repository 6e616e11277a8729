"""The command line: its commands, and the exit status of errors."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import errno
import gc
import json
import os
import resource
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tare.cli import certify, checking, cleaning, fleet, listing
from tare.cli.checking import loaded
from tare.cli.compare import ABORT, compare
from tare.cli.ending import (
    EXIT_FAULT,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    decide_on,
    end,
    resume_hint_on_interrupt,
    write_report,
)
from tare.cli.help import help_about
from tare.cli.history import history
from tare.cli.image import image_app
from tare.cli.lab import lab_app
from tare.cli.output import piped_or_terminal, prepare_streams, print_line
from tare.cli.study import study_app
from tare.cli.study_options import (
    Arms,
    Blocks,
    Cpus,
    Host,
    HostAccess,
    HostsFile,
    Housekeeping,
    Scenarios,
    Seed,
    StudyFile,
    Values,
    Workloads,
    changes_of,
    read_study,
)
from tare.errors import InputError, TareError
from tare.outputs import unusable

LEAST_FILES = 64
USUAL_FILES = 1024
RARE_COLLECTIONS = 50_000
"""The number of new objects between two garbage collections; Python's default of 700 suits small
programs."""
LEAST_ADDRESSES = 1 << 30
"""The least address space, in bytes. A small run needed 0.9 GiB, most of it reserved by threads and
never used."""
NO_MEMORY = TareError(
    "Tare itself ran out of memory", "free memory (free -m), or raise the limit (ulimit -v)"
)

app = typer.Typer(
    name="tare",
    help="Measures what virtualization costs, against the bare machine, with honest error bars.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(lab_app, name="lab")
app.add_typer(image_app, name="image")
app.add_typer(study_app, name="study")

Strict = Annotated[
    bool, typer.Option("--strict", help="End the run as soon as an arm fails in two blocks.")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait", help="For a study in sessions: wait for the next boot instead of ending."
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")]


class Format(StrEnum):
    """Formats of exported observations."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


class Picture(StrEnum):
    """Formats of figures in addition to SVG."""

    png = "png"
    pdf = "pdf"


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Report which platforms work on this host, and for the others why not and what to do."""
    import asyncio

    from tare.images.bundle.installed import import_installed
    from tare.lab.emulator import RUNS_AS
    from tare.platforms.doctor import examine, examine_tracing, missing_programs
    from tare.registry import installed
    from tare.run.lifecycle.session import agent_path, host_facts, local_setup
    from tare.run.lifecycle.versions import agent_identity
    from tare.run.preflight.cache_wait import announced

    with announced(), local_setup() as setup:
        context = setup.context
        asyncio.run(import_installed(context.builder, context.cache, setup.say))
        findings = asyncio.run(examine(setup.context, installed().platforms))
        tracing = asyncio.run(examine_tracing(setup.context))
        missing = asyncio.run(missing_programs(setup.context.host))
    agent = agent_identity(agent_path())
    if as_json:
        facts = {
            "host": host_facts(),
            "agent": agent,
            "tracing": tracing.model_dump(mode="json"),
            "platforms": [f.model_dump(mode="json") for f in findings],
            "labs": {"runs_as": RUNS_AS},
            "missing": missing.model_dump(mode="json"),
            "left_out": [dataclasses.asdict(part) for part in installed().broken],
        }
        print(json.dumps(facts, indent=2))
        return
    print_line(f"{agent['said']}, SHA-256 {agent['sha256']}")
    for finding in findings:
        emulated = " [emulated]" if finding.emulated else ""
        name = " ".join(part for part in (finding.platform, finding.variant) if part)
        _print_finding(f"{name}{emulated}", finding.usable, finding.reason, finding.hint)
        if finding.usable:
            print_line(f"    runs as {finding.runs_as}")
            if finding.kernel:
                print_line(f"    kernel of guests: {finding.kernel}")
    print_line(f"labs: {RUNS_AS}")
    _print_finding("host tracing", tracing.usable, tracing.reason, tracing.hint)
    for name, purpose in missing.programs.items():
        print_line(f"missing: {name}, for {purpose}", "yellow")
    if missing.install:
        print_line(f"    to install what is missing, as root: {missing.install}")
    for part in installed().broken:
        _print_finding(f"{part.kind} {part.name}", False, part.because, part.hint)


def _print_finding(name: str, usable: bool, reason: str, hint: str) -> None:
    mark, style = ("✓", "green") if usable else ("✗", "yellow")
    print_line(f"{mark} {name}: {reason}", style)
    if hint and not usable:
        print_line(f"    {hint}")


@app.command()
def plan(
    study: StudyFile,
    host: Host = "",
    arm: Arms = None,
    workload: Workloads = None,
    scenario: Scenarios = None,
    blocks: Blocks = None,
    values: Values = None,
    cpus: Cpus = "",
    housekeeping: Housekeeping = "",
    seed: Seed = None,
    hosts: HostsFile = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Check every arm by starting it, as a run does.")
    ] = False,
    allow_host_access: HostAccess = False,
    pilot: Annotated[
        Path | None,
        typer.Option(help="The folder of a run from which to estimate blocks and repeats."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show the blocks and cells that would run, with a time estimate; start nothing.

    The plan uses what earlier runs found out about the hosts, or assumptions; it says which.
    For example: tare plan realtime --host xen1 --arm kvm --blocks 3
    """
    import asyncio

    from tare.cli.detectable import resolvable_differences
    from tare.run.lifecycle.folder import open_folder
    from tare.run.preflight.cache_wait import announced
    from tare.run.preflight.planning import headlines_of, plan_here, plan_json, show_plan

    changes = changes_of(host, arm, workload, scenario, blocks, values, cpus, housekeeping)
    wanted, source = read_study(study, changes, hosts)
    if pilot is not None:
        open_folder(pilot)
    with announced():
        outlook = asyncio.run(
            plan_here(wanted, source, seed, probe=probe, host_access=allow_host_access)
        )
    if as_json:
        print(json.dumps(plan_json(outlook), indent=2, ensure_ascii=False))
        return
    show_plan(outlook, piped_or_terminal())
    for sentence in resolvable_differences(wanted, headlines_of(outlook.plan), pilot):
        print_line(f"  {sentence}")
    if pilot is not None:
        from tare.analysis import load_run
        from tare.cli.detectable import advice_for
        from tare.report import render_advice

        advice = advice_for(wanted, load_run(pilot))
        render_advice(advice, wanted.blocks.precision, piped_or_terminal())


@app.command()
def run(
    study: StudyFile,
    host: Host = "",
    arm: Arms = None,
    workload: Workloads = None,
    scenario: Scenarios = None,
    blocks: Blocks = None,
    values: Values = None,
    cpus: Cpus = "",
    housekeeping: Housekeeping = "",
    out: Annotated[Path | None, typer.Option(help="The folder to create for the run.")] = None,
    seed: Seed = None,
    hosts: HostsFile = None,
    strict: Strict = False,
    wait: Wait = False,
    allow_host_access: HostAccess = False,
    cluster: fleet.ClusterAddress = None,
    ca: fleet.Ca = None,
    cert: fleet.Certificate = None,
    key: fleet.Key = None,
) -> None:
    """Run a study with live progress, and write its report.

    For example: tare run realtime --host xen1 --arm xen-pv,xen-hvm --blocks 8
    """
    import asyncio

    from tare.run.lifecycle.interrupt import interruptible
    from tare.run.ui.foreground import run_study

    changes = changes_of(host, arm, workload, scenario, blocks, values, cpus, housekeeping)
    wanted, source = read_study(study, changes, hosts)
    folder = out or Path("runs") / f"{study.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    if cluster is not None:
        fleet.require_workers_hosts(cluster, host)
        choice = fleet.choice_of(cluster, ca, cert, key, wait=wait)
        with resume_hint_on_interrupt(folder, cluster):
            shared = fleet.run_on(
                choice, wanted, source, folder, seed,
                strict=strict, host_access=allow_host_access,
            )  # fmt: skip
            end(folder, shared, cluster)
        return
    fleet.require_no_cluster(wanted)
    running = run_study(
        wanted, source, folder, seed, decide_on, piped_or_terminal(),
        strict=strict, wait=wait, host_access=allow_host_access,
    )  # fmt: skip
    with resume_hint_on_interrupt(folder):
        end(folder, asyncio.run(interruptible(running)))


@app.command("import")
def import_arm(
    file: Annotated[
        Path,
        typer.Argument(
            help="libvirt's XML, QEMU's command line, a Proxmox configuration, OVF or OVA, xl.cfg, "
            ".vmx, Firecracker's JSON, or KubeVirt's YAML. `-` reads standard input."
        ),
    ],
    arm_only: Annotated[
        bool, typer.Option("--arm-only", help="Print only the arm, to insert into a study.")
    ] = False,
) -> None:
    """Print a study that measures a virtual machine of another tool against the bare host.

    The file describes the machine; Tare makes an equal one. Comments at the end of the study
    list everything that was not imported. All arms get the machine's vCPUs and memory, as far as
    this host has them. How to get a file:

    \b
    libvirt       virsh dumpxml web1 > web1.xml
    QEMU          cat /proc/PID/cmdline > web1.txt   (or: ps -ww -o args= -p PID)
    Proxmox       /etc/pve/qemu-server/101.conf      (or: qm config 101)
    OVF, OVA      an export of vSphere, VirtualBox or XenServer
    Xen           /etc/xen/web1.cfg
    VMware        the machine's .vmx file
    Firecracker   its --config-file                  (or: GET /vm/config)
    KubeVirt      kubectl get vm web1 -o yaml > web1.yaml

    For example: tare import web1.xml > web1-study.yaml; tare run web1-study.yaml
    """  # noqa: D301 - \b is what keeps the lines of the table
    from tare.platforms.imported.arm import room_here
    from tare.platforms.imported.read import import_file

    arm = import_file(file)
    print(arm.text() if arm_only else arm.study(room_here()), end="")


@app.command()
def resume(
    directory: RunDir,
    strict: Strict = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Resume even if the host or a version has changed.")
    ] = False,
    wait: Wait = False,
    allow_host_access: HostAccess = False,
    cluster: fleet.ClusterAddress = None,
    ca: fleet.Ca = None,
    cert: fleet.Certificate = None,
    key: fleet.Key = None,
) -> None:
    """Resume after a crash, kill or Ctrl-C, at the first unfinished cell."""
    if cluster is not None:
        choice = fleet.choice_of(cluster, ca, cert, key, wait=wait)
        with resume_hint_on_interrupt(directory, cluster):
            shared = fleet.resume_on(
                choice, directory, strict=strict, accept=accept, host_access=allow_host_access
            )
            end(directory, shared, cluster)
        return
    import asyncio

    from tare.run.lifecycle.interrupt import interruptible
    from tare.run.ui.foreground import resume_run

    going = resume_run(
        directory, decide_on, piped_or_terminal(),
        strict=strict, accept=accept, wait=wait, host_access=allow_host_access,
    )  # fmt: skip
    with resume_hint_on_interrupt(directory):
        end(directory, asyncio.run(interruptible(going)))


@app.command()
def report(
    directory: RunDir,
    reference: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Show published values next to the run's own."),
    ] = None,
    figures: Annotated[
        list[Picture] | None,
        typer.Option(
            help="Also draw each figure in this format, in addition to SVG; needs "
            "hypertare[figures]."
        ),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(metavar="ARM", help="Compare with this arm, not with the study's baseline."),
    ] = "",
) -> None:
    """Rebuild the report from the stored events."""
    formats = tuple(each.value for each in figures or ())
    write_report(directory, reference or (), formats, baseline)


@app.command()
def export(
    directory: RunDir,
    as_format: Annotated[Format, typer.Option("--format", help="File format.")] = Format.csv,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file, not to standard output.")
    ] = None,
) -> None:
    """Write the observations as tidy data, one row each."""
    from tare.analysis import export_observations, write_observations

    if as_format is Format.parquet and out is None and sys.stdout.isatty():
        raise InputError("Parquet is binary", "name a file with --out")
    run = loaded(directory)
    if out is None:
        sys.stdout.buffer.write(export_observations(run, as_format.value))
        sys.stdout.buffer.flush()
    else:
        write_observations(run, out, as_format.value)


app.command()(compare)
app.command()(history)
app.command("help")(help_about)


listing.add_to(app)
checking.add_to(app)
certify.add_to(app)
fleet.add_to(app)
cleaning.add_to(app)


@app.callback()
def _tare(version: listing.Version = False) -> None:
    del version


def require_limits() -> None:
    """Check the limits of Tare's own process, and raise the soft limit of open files if needed.

    With too little address space, libraries abort the process. With too few descriptors, the error
    names the file that happens to be opened next.

    Raises:
        InputError: A limit (ulimit) is too low; the message has the limit and the command to raise
            it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < USUAL_FILES:
        most = USUAL_FILES if hard == resource.RLIM_INFINITY else min(hard, USUAL_FILES)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if 0 <= soft < LEAST_FILES:
        raise InputError(
            f"Tare may have only {soft} files open at once (ulimit -n), and needs {LEAST_FILES}",
            f"raise the limit: ulimit -n {USUAL_FILES}",
        )
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and 0 <= addresses < LEAST_ADDRESSES:
        raise InputError(
            f"Tare may have only {addresses >> 20} MiB of memory (ulimit -v), and needs "
            f"{LEAST_ADDRESSES >> 20} MiB",
            "raise the limit: ulimit -v unlimited",
        )


def main() -> int:
    """Run the command line; return its exit status."""
    prepare_streams()
    # Loaded objects stay alive: repeated searches for garbage among them took a tenth of a start.
    gc.set_threshold(RARE_COLLECTIONS)
    # A garbage collection at the process's end took a tenth of a report's time.
    atexit.register(gc.freeze)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        # The program that started this one must not keep SIGINT blocked while code is loaded.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        require_limits()
        app(standalone_mode=True)
    except SystemExit as ended:
        if ended.code == EXIT_INPUT and "--bisect" in sys.argv:
            # A usage error does not show whether a commit is good or bad.
            return ABORT
        raise
    except InputError as error:
        return _print_error(error, EXIT_INPUT)
    except TareError as error:
        return _print_error(error, EXIT_FAULT)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAULT
    except MemoryError:
        return _print_error(NO_MEMORY, EXIT_FAULT)
    except OSError as error:
        if error.errno == errno.EIO and not os.isatty(sys.stdout.fileno()):
            # The terminal was closed before its signal came.
            from tare.run.lifecycle.interrupt import leave_terminal

            leave_terminal()
            return EXIT_INTERRUPTED
        return _print_error(unusable(error), EXIT_INPUT)
    return 0


def _print_error(error: TareError, status: int) -> int:
    print(f"tare: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"      {error.hint}", file=sys.stderr)
    return status
