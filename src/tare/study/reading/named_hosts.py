"""The computer of each arm: host names in a study are replaced by their descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tare.study.reading.checking import KeyStyle, StudyErrors, shown, suggestion
from tare.study.reading.hosting import ALWAYS
from tare.study.reading.hosts_file import KnownHosts, check_host
from tare.study.reading.yamltext import Path

_FILE = KeyStyle(kebab=True)


def name_hosts(data: Mapping[str, Any], known: KnownHosts, findings: StudyErrors) -> dict[str, Any]:
    """Return a study's plain data with every host name replaced by its description.

    A study of one host has only ``host``, however it was written. If there are several, ``hosts``
    holds all that arms run on, and every arm has its own in ``on``.

    Args:
        data: The study as written, with changes.
        known: The computers that the user has named.
        findings: Collects the problems.
    """
    data = with_cluster_hosts(data, findings)
    names = _Names(data, known, findings)
    home = names.home()
    arms = data.get("arms")
    arms = arms if isinstance(arms, Mapping) else {}
    on = {name: names.of_arm(name, arm, home) for name, arm in arms.items()}
    of_machines = [names.of_machine(*found) for found in _machines(data)]
    used = dict.fromkeys(each for each in (*on.values(), *of_machines) if each is not None)
    found = {name: names.meaning(name) for name in used if name}
    plain = {key: value for key, value in data.items() if key != "hosts"}
    if len(used) < 2:
        if alone := next(iter(used), home):
            plain["host"] = names.meaning(alone)
        alike = {**plain, "arms": _without_on(arms)} if arms else plain
        return _without_machines_on(alike)
    if "" in used:
        findings.add(
            ("host",),
            "arms run on other hosts too, so this one needs a name: describe it in `hosts`, and "
            "write its name here",
        )
        return plain
    specs = {
        name: {"kind": spec} if isinstance(spec, str) else spec for name, spec in found.items()
    }
    return {
        **plain,
        "host": specs[home] if home in specs else next(iter(specs.values())),
        "hosts": specs,
        "arms": {
            name: {**arm, "on": on[name]} if isinstance(arm, Mapping) and on[name] else arm
            for name, arm in arms.items()
        },
    }


class _Names:
    """The meaning of host names in a study."""

    def __init__(self, data: Mapping[str, Any], known: KnownHosts, findings: StudyErrors) -> None:
        self._data = data
        self._known = known
        self._findings = findings
        self._own = self._written_here()

    def home(self) -> str:
        """Return the default host's name; empty if it has no name."""
        written = self._data.get("host")
        if isinstance(written, str):
            self._require(written, ("host",))
            return written
        if written is not None:
            return ""
        return next(iter(self._own), ALWAYS[0])

    def of_arm(self, name: str, arm: Any, home: str) -> str | None:
        """Return the name of an arm's host; None for a twin, which uses the other's."""
        if isinstance(arm, Mapping) and arm.get("on") is not None:
            on = arm["on"]
            if not isinstance(on, str):
                self._findings.add(
                    ("arms", name, "on"), f"must be the name of a host, not {shown(on)}"
                )
                return home
            self._require(on, ("arms", name, "on"))
            return on
        return None if isinstance(arm, Mapping) and "twin-of" in arm else home

    def of_machine(self, path: Path, on: Any) -> str | None:
        """Return the name of the host that a scenario's machine names."""
        if not isinstance(on, str):
            self._findings.add(path, f"must be the name of a host, not {shown(on)}")
            return None
        self._require(on, path)
        return on

    def meaning(self, name: str) -> Any:
        """Return a name's description as written; this computer if an error was reported."""
        return self._own[name] if name in self._own else self._known_as(name)

    def _known_as(self, name: str) -> Any:
        return name if name in ALWAYS else self._known.hosts.get(name, ALWAYS[0])

    def _written_here(self) -> dict[str, Any]:
        """Return the hosts that the study itself describes, by name."""
        written = self._data.get("hosts")
        if isinstance(written, list) and all(isinstance(name, str) for name in written):
            for index, name in enumerate(written):
                self._require(name, ("hosts", index), {})
            return {name: self._known_as(name) for name in written}
        if written is not None and not isinstance(written, Mapping):
            self._findings.add(
                ("hosts",),
                f"must be names of hosts, such as {{xen1: {{ssh: NAME}}}}, not {shown(written)}",
            )
            return {}
        own = {}
        for name, meant in (written or {}).items():
            if isinstance(meant, str) or meant is None:
                self._require(meant or name, ("hosts", name), {})
                meant = self._known_as(meant or name)
            else:
                check_host(meant, ("hosts", name), _FILE, self._findings)
            own[name] = meant
        return own

    def _require(self, name: str, path: Path, own: Mapping[str, Any] | None = None) -> None:
        names = {*ALWAYS, *self._known.hosts, *(self._own if own is None else own)}
        if name in names:
            return
        known = f"there is no host {name!r}{suggestion(name, names)}"
        end = "" if known.endswith("?") else "."
        self._findings.add(
            path,
            f"{known}{end} To add one, write `{name}: {{ssh: ADDRESS}}` in {self._known.path}",
        )


def _machines(data: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the host that each machine of a scenario names, with its path."""
    scenarios = data.get("scenarios")
    for name, scenario in scenarios.items() if isinstance(scenarios, Mapping) else ():
        machines = scenario.get("machines") if isinstance(scenario, Mapping) else None
        for role, machine in machines.items() if isinstance(machines, Mapping) else ():
            if isinstance(machine, Mapping) and machine.get("on") is not None:
                yield ("scenarios", name, "machines", role, "on"), machine["on"]
        cluster = scenario.get("cluster") if isinstance(scenario, Mapping) else None
        hosts = cluster.get("hosts") if isinstance(cluster, Mapping) else None
        for index, host in enumerate(hosts if isinstance(hosts, list) else ()):
            yield ("scenarios", name, "cluster", "hosts", index), host


def _without_machines_on(data: dict[str, Any]) -> dict[str, Any]:
    """Return a study of one host without that host's name in its scenarios."""
    scenarios = data.get("scenarios")
    if not isinstance(scenarios, Mapping) or not any(True for _ in _machines(data)):
        return data
    return {
        **data,
        "scenarios": {
            name: _without_hosts(scenario) if isinstance(scenario, Mapping) else scenario
            for name, scenario in scenarios.items()
        },
    }


def _without_hosts(scenario: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(scenario)
    if isinstance(machines := found.get("machines"), Mapping):
        found["machines"] = _without_on(machines)
    if isinstance(cluster := found.get("cluster"), Mapping):
        found["cluster"] = {key: value for key, value in cluster.items() if key != "hosts"}
    return found


def _without_on(arms: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in arm.items() if key != "on"}
        if isinstance(arm, Mapping)
        else arm
        for name, arm in arms.items()
    }


def with_cluster_hosts(data: Mapping[str, Any], findings: StudyErrors) -> Mapping[str, Any]:
    """Return a study's plain data with the study's hosts in clusters that are placed ``apart``.

    Args:
        data: The study as written, with changes.
        findings: Collects the problems.
    """
    scenarios = data.get("scenarios")
    if not isinstance(scenarios, Mapping):
        return data
    named = data.get("hosts")
    hosts = [str(name) for name in named] if isinstance(named, list | Mapping) else []
    changed = {}
    for name, scenario in scenarios.items():
        cluster = scenario.get("cluster") if isinstance(scenario, Mapping) else None
        if not isinstance(cluster, Mapping) or cluster.get("placement") != "apart":
            continue
        if cluster.get("hosts"):
            continue
        if len(hosts) < 2:
            findings.add(
                ("scenarios", str(name), "cluster", "placement"),
                "needs at least two hosts for the slaves: write `hosts: [host-a, host-b]` in the "
                "study, or `placement: together`",
            )
            continue
        changed[name] = {**scenario, "cluster": {**cluster, "hosts": hosts}}
    return {**data, "scenarios": {**scenarios, **changed}} if changed else data
