"""The choice of CPUs by a study, a hosts file and the command line, and its errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hosts.snapshots import snapshot
from tare.cli.main import app
from tare.errors import InputError
from tare.run.catalog import build_catalog
from tare.study.model.study import Study
from tare.study.planning.cpu_choice import CpuChoice, arranged, described
from tare.study.planning.host_cpus import HostCpus
from tare.study.reading.changes import Changes
from tare.study.reading.hosts_file import KnownHosts, parse_hosts
from tare.study.reading.load import parse_study, restore_study

HYBRID = snapshot("20em64t-hybrid-1p6c2t+2ca4co1t")
TWO_NODES = HostCpus(
    online=tuple(range(8)),
    nodes={cpu: cpu // 4 for cpu in range(8)},
    caches={cpu: cpu // 2 for cpu in range(8)},
    refused={8: "is offline", 9: "is not among the CPUs that the control group allows"},
)
STUDY = """
study: chosen
baseline: bare
arms: {bare: {platform: bare}}
workloads: {numeric-sort: {}}
"""


def study(more: str = "", changes: Changes | None = None, hosts: str = "") -> Study:
    parsed = parse_hosts(hosts.encode(), "hosts.yaml") if hosts else {}
    known = KnownHosts(Path("hosts.yaml"), parsed)
    text = (STUDY + more).encode()
    return parse_study(text, "chosen.yaml", build_catalog(), changes or Changes(), known)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("[2, 3]", "2,3"),
        ("[2-5, 8]", "2-5,8"),
        ('"2-5,8"', "2-5,8"),
        ("2-5,8", "2-5,8"),
        ("3", "3"),
        ("{node: 1}", "node:1"),
        ("{node: [0, 1]}", "node:0,node:1"),
        ("{l3: 0}", "l3:0"),
        ("'node 1, 7'", "node:1,7"),
        ("l3=2", "l3:2"),
    ],
)
def test_cpus_are_written_in_several_forms(written: str, words: str) -> None:
    loaded = study(f"cpus: {written}\nhousekeeping: 0\ncores: performance\n")
    assert loaded.choice_of("") == CpuChoice(words, "0", "performance")
    again = restore_study(loaded.model_dump(mode="json"), build_catalog())
    assert again.choice_of("") == loaded.choice_of("")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("x", "must be CPU numbers"),
        ("[]", "must be CPU numbers"),
        ("5-2", "write 2-5"),
        ("{socket: 1}", "must be CPU numbers"),
        ("99999", "no CPU 99999"),
        ("[-1]", "must be CPU numbers"),
        ("true", "must be CPU numbers"),
    ],
)
def test_an_invalid_list_of_cpus_is_one_error_with_its_line(written: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        study(f"cpus: {written}\n")
    assert "chosen.yaml:6:" in str(error.value)


def test_the_command_line_goes_before_the_hosts_file_and_that_before_the_study() -> None:
    hosts = "big: {ssh: big.example, cpus: 4-7, cores: efficiency}\n"
    own = study("host: big\ncpus: 1\nhousekeeping: 0\n", hosts=hosts)
    assert own.choice_of("") == CpuChoice("4-7", "0", "efficiency")
    given = study("host: big\ncpus: 1\n", Changes(cpus="node:1"), hosts=hosts)
    assert given.choice_of("").cpus == "node:1"
    here = study("host: {cpus: [1], housekeeping: [0]}\n")
    assert (here.host.kind, here.choice_of("").cpus) == ("local", "1")


def chosen(host: HostCpus, wanted: int = 1, /, **choice: Any) -> HostCpus:
    return arranged(host, CpuChoice(**choice), wanted)


def test_cpus_nodes_caches_and_housekeeping_are_found() -> None:
    assert chosen(TWO_NODES, cpus="2-3,7").machines == (2, 3, 7)
    assert chosen(TWO_NODES, cpus="node:1").machines == (4, 5, 6, 7)
    assert chosen(TWO_NODES, cpus="l3:1").machines == (2, 3)
    kept = chosen(TWO_NODES, cpus="node:1", housekeeping="4")
    assert (kept.machines, kept.housekeeping) == ((5, 6, 7), (4,))
    rest = chosen(TWO_NODES, housekeeping="0-1")
    assert (rest.machines, rest.apart_from((5,))) == ((2, 3, 4, 5, 6, 7), (0, 1))
    assert chosen(TWO_NODES).measured == ()
    assert chosen(kept, cpus="node:1", housekeeping="4") == kept


def test_a_domain_of_two_kinds_gives_the_wanted_kind() -> None:
    assert chosen(HYBRID, cpus="node:0").machines == tuple(range(12))
    assert chosen(HYBRID, cpus="node:0", cores="efficiency").machines == tuple(range(12, 20))
    assert chosen(HYBRID, cpus="14-15").machines == (14, 15)


@pytest.mark.parametrize(
    ("cpus", "wanted", "choice", "message"),
    [
        (TWO_NODES, 1, {"cpus": "2,12"}, "CPU 12 does not exist on this host"),
        (TWO_NODES, 1, {"cpus": "7-8"}, "CPU 8 is offline"),
        (TWO_NODES, 1, {"cpus": "9"}, "control group allows"),
        (TWO_NODES, 1, {"cpus": "20-22"}, "CPUs 20-22 do not exist on this host"),
        (TWO_NODES, 1, {"housekeeping": "8"}, "`housekeeping: 8`: CPU 8 is offline"),
        (TWO_NODES, 1, {"cpus": "node:2"}, "no NUMA node 2"),
        (TWO_NODES, 1, {"cpus": "l3:9"}, "no L3 cache 9"),
        (TWO_NODES, 1, {"cpus": "1-2", "housekeeping": "2-3"}, "both name CPU 2"),
        (TWO_NODES, 1, {"cores": "efficiency"}, "all of one kind"),
        (TWO_NODES, 3, {"cpus": "1-2"}, "leaves 2 CPUs for machines .*3 vCPUs"),
        (TWO_NODES, 1, {"housekeeping": "0-7"}, "leaves 0 CPUs for machines"),
        (HYBRID, 1, {"cpus": "10-13"}, "mixes kinds .*10-11 .performance.*12-13 .efficiency"),
        (
            HYBRID,
            1,
            {"cpus": "2", "cores": "efficiency"},
            "none of these CPUs belongs to the efficiency cores",
        ),
        (HYBRID, 13, {"cores": "performance"}, "leaves 12 CPUs"),
    ],
)
def test_cpus_that_cannot_be_used_are_one_clear_error(
    cpus: HostCpus, wanted: int, choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        chosen(cpus, wanted, **choice)
    assert "\n" not in error.value.message


def test_special_features_of_a_host_are_described() -> None:
    isolated = replace(TWO_NODES, isolated=frozenset({6, 7}))
    words = " ".join(described(chosen(isolated, cpus="4-7", housekeeping="0")))
    assert "machines run on CPUs 4-7 of 0-7" in words
    assert "everything else of Tare runs on CPU 0" in words
    assert "CPUs 6-7 are isolated" in words
    assert "others run on CPUs 4-5" in words
    assert described(chosen(HostCpus(online=(0, 1)))) == ()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_command_refuses_cpus_that_are_not_there(command: str, tmp_path: Path) -> None:
    file = tmp_path / "chosen.yaml"
    file.write_text(STUDY)
    out = ["--out", str(tmp_path / "run")] if command == "run" else []
    done = CliRunner().invoke(app, [command, str(file), "--cpus", "60000", *out])
    assert isinstance(done.exception, InputError)
    assert "CPU 60000 does not exist" in str(done.exception)
    assert not (tmp_path / "run").exists()
