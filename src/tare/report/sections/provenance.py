"""The section on platforms, images, checks and facts of the host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.model import (
    CellResult,
    Comparison,
    HostCost,
    ImageUsed,
    PlatformResult,
    RunData,
)
from tare.analysis.topics.kernels import KernelFacts, kernels
from tare.references.missing_values import why_usable_or_not
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, joined, marked
from tare.report.sections.contract import Section, SectionData
from tare.units import (
    format_duration,
    format_number,
    format_quantity,
    format_size,
    shape_words,
)


@dataclass(frozen=True)
class ProvenanceData(SectionData):
    """The content of the section on platforms and hosts."""

    description: str
    platforms: ShownTable
    existing: ShownTable | None
    images: ShownTable | None
    kernels: ShownTable | None
    places: ShownTable | None
    adapted: tuple[str, ...]
    costs: ShownTable | None
    clocks: ShownTable | None
    facts: tuple[tuple[str, str], ...]


class Provenance(Section):
    """The platforms, images and hosts of the runs, and the cost to the hosts."""

    name, title, template = "ran", "What ran", "provenance.html.j2"

    def data(self, report: ReportData) -> ProvenanceData:
        """Return platforms, images, kernels, placement, costs, clocks and facts of the hosts."""
        runs = report.runs
        costs, of_kernels = host_cost_table(report.comparison), kernels_table(runs)
        return ProvenanceData(
            description=legible(str(runs[0].study.get("description") or "")),
            platforms=platforms_table(runs).shown(),
            existing=_unless_empty(existing_table(runs)),
            images=_unless_empty(images_table(runs)),
            kernels=_unless_empty(of_kernels),
            places=_unless_empty(places_table(runs)),
            adapted=tuple(dict.fromkeys(legible(note) for run in runs for note in run.adapted)),
            costs=_unless_empty(costs),
            clocks=_unless_empty(clocks_table(runs)),
            facts=run_facts(runs),
            tables=(costs, of_kernels),
        )


def _unless_empty(table: Table[Any]) -> ShownTable | None:
    return table.shown() if table.rows else None


def platforms_table(runs: Iterable[RunData]) -> Table[PlatformResult]:
    """Return every arm with its platform, options, versions and usability, each once."""
    rows: dict[str, PlatformResult] = {}
    for run in runs:
        for platform in run.platforms:
            rows.setdefault(repr(platform), platform)
    columns: tuple[Column[PlatformResult], ...] = (
        Column("arm", lambda p: p.arm, "Arm", lambda p: marked(p.arm, p.emulated)),
        Column("emulated", lambda p: p.emulated),
        Column("platform", lambda p: p.platform),
        Column(
            "description",
            lambda p: p.description,
            "What it is",
            lambda p: ", ".join(filter(None, (p.description or p.platform, p.mark))),
        ),
        Column("options", lambda p: compact(p.options), "Options"),
        Column("versions", lambda p: compact(p.versions), "Versions"),
        Column("usable", lambda p: p.usable, "Ran", lambda p: "yes" if p.usable else "no"),
        Column("reason", lambda p: p.reason, "Why", lambda p: why_usable_or_not(p) or NONE),
    )
    tone = lambda p: "emulated" if p.emulated else ""  # noqa: E731
    return Table("platforms", "Arms and their platforms", columns, tuple(rows.values()), tone=tone)


def existing_table(runs: Iterable[RunData]) -> Table[PlatformResult]:
    """Return properties of existing machines and hypervisors, and what Tare does not control."""
    rows: dict[str, PlatformResult] = {}
    for run in runs:
        for platform in run.platforms:
            if platform.shown or platform.uncontrolled:
                rows.setdefault(repr(platform), platform)
    columns: tuple[Column[PlatformResult], ...] = (
        Column("arm", lambda p: p.arm, "Arm", lambda p: marked(p.arm, p.emulated)),
        Column(
            "shown",
            lambda p: "; ".join(f"{name}: {words}" for name, words in p.shown.items()),
            "What it shows",
        ),
        Column("uncontrolled", lambda p: "; ".join(p.uncontrolled), "What was not controlled"),
    )
    title = "Machines that exist, and hypervisors"
    return Table("existing", title, columns, tuple(rows.values()))


def images_table(runs: Iterable[RunData]) -> Table[ImageUsed]:
    """Return the booted images, identified by their content, each once."""
    rows: dict[tuple[str, str], ImageUsed] = {}
    emulated: set[str] = set()
    for run in runs:
        emulated |= run.emulated_arms
        for image in run.images:
            rows.setdefault((image.arm, image.digest), image)
    columns: tuple[Column[ImageUsed], ...] = (
        Column("arm", lambda i: i.arm, "Arm", lambda i: marked(i.arm, i.arm in emulated)),
        Column("kernel", lambda i: i.kernel, "Kernel"),
        Column("digest", lambda i: i.digest, "Image", lambda i: i.digest[:19] or NONE),
        Column("cached", lambda i: i.cached, "Cached", lambda i: "yes" if i.cached else "no"),
        Column(
            "took_s",
            lambda i: i.took_s,
            "Preparing took",
            lambda i: format_duration(i.took_s),
            numeric=True,
        ),
    )
    return Table("images", "What machines booted", columns, tuple(rows.values()))


def kernels_table(runs: Iterable[RunData]) -> Table[KernelFacts]:
    """Return each arm's kernel: its tick rate, CPUs without ticks, and preemption model."""
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
    caption = "The kernels of the machines, as they report themselves"
    return Table("kernels", caption, columns, kernels(runs), tone=tone)


def _preemption(kernel: KernelFacts) -> str:
    return "PREEMPT_RT" if kernel.preempt == "rt" else kernel.preempt or NONE


def host_cost_table(comparison: Comparison) -> Table[HostCost]:
    """Return the cost of each arm's machines to the host."""
    columns: tuple[Column[HostCost], ...] = (
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("scenario", lambda c: c.scenario, "Scenario"),
        Column("machines", lambda c: c.machines, "Machines", numeric=True),
        Column(
            "boot_s",
            lambda c: c.boot_s,
            "Boot",
            lambda c: NONE if c.boot_s is None else format_duration(c.boot_s),
            numeric=True,
        ),
        Column(
            "cpu_s",
            lambda c: c.cpu_s,
            "CPU time",
            lambda c: NONE if c.cpu_s is None else format_duration(c.cpu_s),
            numeric=True,
        ),
        Column(
            "rss_bytes",
            lambda c: c.rss_bytes,
            "Memory",
            lambda c: NONE if c.rss_bytes is None else format_size(c.rss_bytes),
            numeric=True,
        ),
    )
    caption = "What a machine costs the host: medians over machines"
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("host-cost", caption, columns, comparison.host_costs, tone=tone)


@dataclass(frozen=True)
class UsedCpus:
    """The host CPUs that the machines of one role ran on, and their arms."""

    scenario: str
    summary: str
    role: str
    cpus: str
    memory: str
    network: str
    arms: tuple[str, ...]


def memory_words(placement: Mapping[str, Any]) -> str:
    """Return the memory limit of a process on the host; empty if none was recorded."""
    memory = placement.get("memory")
    if not isinstance(memory, Mapping) or "kept_to" not in memory:
        return ""
    kept = memory["kept_to"]
    if isinstance(kept, int) and not isinstance(kept, bool):
        return f"kept to {format_size(kept)}, page cache included"
    return f"all the host’s: {memory.get('reason')}"


def places_table(runs: Iterable[RunData]) -> Table[UsedCpus]:
    """Return the host CPUs of machines by scenario; arms with equal placement share a row."""
    arms: dict[tuple[str, str, str, str, str, str], dict[str, None]] = {}
    for run in runs:
        named = run.study.get("scenarios")
        scenarios = named if isinstance(named, Mapping) else {}
        order = {arm: place for place, arm in enumerate(run.arms)}
        for machine in sorted(run.machines, key=lambda m: order.get(m.arm, len(order))):
            if machine.boot_s is None:
                continue
            spec = scenarios.get(machine.scenario)
            summary = str(spec.get("summary", "")) if isinstance(spec, Mapping) else ""
            cpus = machine.placement.get("cpus")
            where = ", ".join(map(str, cpus)) if isinstance(cpus, list | tuple) and cpus else "any"
            network = connection_words(machine.placement)
            memory = memory_words(machine.placement)
            key = (machine.scenario, summary, machine.role, where, memory, network)
            arms.setdefault(key, {})[marked(machine.arm, machine.arm in run.emulated_arms)] = None
    columns: tuple[Column[UsedCpus], ...] = (
        Column("scenario", lambda p: p.scenario, "Scenario"),
        Column("summary", lambda p: p.summary, "What it is", lambda p: p.summary or NONE),
        Column("role", lambda p: p.role, "Role"),
        Column("cpus", lambda p: p.cpus, "Host CPUs"),
        Column("memory", lambda p: p.memory, "Memory limit", lambda p: legible(p.memory) or NONE),
        Column("network", lambda p: p.network, "Network", lambda p: legible(p.network) or NONE),
        Column("arms", lambda p: ", ".join(p.arms), "Arms"),
    )
    rows = tuple(UsedCpus(*key, tuple(found)) for key, found in sorted(arms.items()))
    return Table("places", "Where machines ran", columns, rows)


@dataclass(frozen=True)
class Clock:
    """The worst errors of the clocks of an arm's machines."""

    arm: str
    emulated: bool
    cells: int
    drift_ppm: float | None
    uncertainty_ppm: float | None
    skew_s: float | None


def clocks_table(runs: Sequence[RunData]) -> Table[Clock]:
    """Return the worst clock drift, its uncertainty and the worst start skew of each arm."""
    cells: dict[tuple[str, bool], list[CellResult]] = {
        (arm, arm in run.emulated_arms): [] for run in runs for arm in run.arms
    }
    for run in runs:
        for cell in run.cells:
            cells.setdefault((cell.arm, cell.arm in run.emulated_arms), []).append(cell)
    rows = tuple(
        Clock(
            arm,
            emulated,
            len(found),
            _worst(found, "clock_drift_ppm"),
            _worst(found, "clock_uncertainty_ppm"),
            _worst(found, "start_skew_s"),
        )
        for (arm, emulated), found in cells.items()
    )

    def ppm(value: float | None) -> str:
        return NONE if value is None else f"{format_number(value)} ppm"

    columns: tuple[Column[Clock], ...] = (
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("cells", lambda c: c.cells, "Cells", numeric=True),
        Column(
            "drift_ppm",
            lambda c: c.drift_ppm,
            "Worst clock drift",
            lambda c: ppm(c.drift_ppm),
            True,
        ),
        Column(
            "uncertainty_ppm",
            lambda c: c.uncertainty_ppm,
            "Its uncertainty",
            lambda c: ppm(c.uncertainty_ppm),
            numeric=True,
        ),
        Column(
            "skew_s",
            lambda c: c.skew_s,
            "Worst start skew",
            lambda c: NONE if c.skew_s is None else format_duration(c.skew_s),
            numeric=True,
        ),
    )
    known = tuple(row for row in rows if (row.drift_ppm, row.skew_s) != (None, None))
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    caption = "Clock drift between guests and host, and differences between the starts of roles"
    return Table("clocks", caption, columns, known, tone=tone)


def _worst(cells: Iterable[CellResult], fact: str) -> float | None:
    values = [cell.facts.get(fact) for cell in cells]
    known = [abs(value) for value in values if isinstance(value, int | float)]
    return max(known, default=None)


def run_facts(runs: Sequence[RunData]) -> tuple[tuple[str, str], ...]:
    """Return facts on host, shape and time as pairs of name and text."""
    facts: dict[str, str] = {}
    for run in runs:
        facts |= dict(flat(run.host))
        facts |= _shapes(run)
        for name, seconds in (
            ("wall time", run.wall_s),
            ("of it booting", run.booting_s),
            ("of it measuring", run.measuring_s),
        ):
            if seconds > 0:
                key = name if len(runs) == 1 else f"{name} ({run.run})"
                facts[key] = format_duration(seconds)
        if ends := _other_ends(run):
            facts["network’s other end"] = ends
        if run.resumed:
            facts[f"resumed ({run.run})"] = f"{run.resumed} times"
    return tuple((legible(name), legible(text)) for name, text in facts.items())


NETWORKED = frozenset(
    ("net-stream", "request-response", "connect-request-response", "packet-rate", "http-load")
)


GIVEN_END = (
    "a process on the arm’s host, over a network that Tare did not make: the path includes all "
    "that is between the two computers, and others share it"
)


def _other_ends(run: RunData) -> str:
    """Return where the network peers of the machines ran; empty without any."""
    scenarios = _mapping(run.study.get("scenarios"))
    kinds = {
        str(label): str(_mapping(spec).get("workload", label))
        for label, spec in _mapping(run.study.get("workloads")).items()
    }
    given = {machine.arm for machine in run.machines if is_given(machine.placement)}
    found: dict[str, list[str]] = {}
    for cell in run.cells:
        if kinds.get(cell.workload, cell.workload) not in NETWORKED:
            continue
        peer = _mapping(_mapping(scenarios.get(cell.scenario)).get("machines")).get("peer")
        where = "a process on the machine’s own host"
        if isinstance(peer, Mapping):
            on = peer.get("on")
            where = f"a machine on {on}" if on else "a machine on the same host"
        elif cell.arm in given:
            where = GIVEN_END
        among = found.setdefault(where, [])
        if cell.scenario not in among:
            among.append(cell.scenario)
    return "; ".join(f"{where} ({', '.join(names)})" for where, names in found.items())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _shapes(run: RunData) -> dict[str, str]:
    """Return the shape of the machines: one for all, or that of each group of arms."""
    arms: dict[str, list[str]] = {}
    for arm in run.arms:
        if shape := run.shape_of(arm):
            arms.setdefault(shape_words(shape), []).append(arm)
    if len(arms) == 1:
        return {"shape of each machine": next(iter(arms))}
    return {f"shape of {joined(named)}": words for words, named in arms.items()}


def flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested facts as pairs of a dotted name and a short text."""
    pairs: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            pairs += flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            pairs.append((name, ", ".join(str(part) for part in value)[:200] or NONE))
        elif key.endswith("_bytes") and isinstance(value, int | float):
            pairs.append((name.removesuffix(" bytes"), format_size(value)))
        elif value is not None:
            pairs.append((name, str(value)[:200]))
    return pairs


def compact(options: Mapping[str, Any]) -> str:
    """Return options as ``name=value`` words."""
    words = [f"{name}={_word(value)}" for name, value in options.items() if value is not None]
    return ", ".join(words) or NONE


def _word(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, default=str)


SWITCHES = {"openvswitch": "Open vSwitch", "routed": "routed"}


GIVEN = "given"
"""The network path of machines that use a network Tare did not make."""


def is_given(placement: Mapping[str, Any]) -> bool:
    """Return whether a machine was measured over a network that Tare did not make."""
    network = placement.get("network")
    return isinstance(network, Mapping) and network.get("way") == GIVEN


def _unmade(network: Mapping[str, Any]) -> str:
    if network.get("way") != GIVEN:
        return ""
    mtu = network.get("mtu")
    longest = f", packets of up to {mtu} bytes" if type(mtu) is int else ""
    return f" (the host’s own network, which others share{longest})"


def connection_words(placement: Mapping[str, Any]) -> str:
    """Return a description of a machine's network card and network; empty without a network.

    Args:
        placement: The placement that a run of any version recorded. Unknown values are left out.
    """
    network = placement.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("way"), str):
        return ""
    words = [f"{network['way']}{_unmade(network)}"]
    nic = placement.get("nic")
    if isinstance(nic, Mapping) and isinstance(nic.get("model"), str):
        queues = nic.get("queues")
        words.append(
            f"{nic['model']}{' with vhost' if nic.get('vhost') is True else ''}"
            f"{f', {queues} queues' if isinstance(queues, int) and queues > 1 else ''}"
            f"{', no offloads' if nic.get('offloads') is False else ''}"
        )
    switch = SWITCHES.get(str(network.get("switch")))
    if switch is not None:
        words.append(f"{switch}{', tracked' if network.get('conntrack') is True else ''}")
    link = network.get("link")
    rate = link.get("bits_per_s") if isinstance(link, Mapping) else None
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        words.append(f"a link of {format_quantity(float(rate), 'bit/s')}")
    return "; ".join(words)
