"""Requirements that an arm's machines cannot meet are the reason for a skip, before any start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tare.platforms.contract import Capabilities
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.preflight.capacity import machines_of
from tare.run.preflight.unmet_needs import lacking, lacking_loads, own_ends
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, make_plan
from tare.study.reading.load import parse_study
from tare.workloads import WORKLOADS
from tare.workloads.mapreduce.outside import SITES

ABLE = Capabilities(
    pinning=True,
    max_vcpus=4,
    min_memory=1 << 24,
    network=frozenset({"tap"}),
    disk=frozenset({"virtio-blk"}),
    toolbox=frozenset({"disk"}),
)
NEEDY = ("bzip2-compress", "fio", "http-load", "kernel-compile")


def without(capability: str) -> Capabilities:
    nothing: dict[str, Any] = {capability: frozenset()}
    return replace(ABLE, **nothing)


def study_of(disk: str = "1GiB", memory: str = "1GiB", loads: str = "[]") -> Study:
    text = f"""
study: needs
baseline: bare
shape: {{disk: {disk}, memory: {memory}}}
arms: {{bare: {{platform: bare}}}}
scenarios: {{alone: {{}}, crowded: {{neighbours: {loads}}}}}
workloads: {{tick: {{}}, {", ".join(f"{name}: {{}}" for name in NEEDY)}}}
"""
    return parse_study(text.encode(), "needs.yaml", build_catalog())


def test_nothing_is_skipped_where_everything_is_there() -> None:
    assert lacking(WORKLOADS, study_of(), "bare", ABLE) == {}


@pytest.mark.parametrize("capability", ["toolbox", "disk", "network"])
def test_a_platform_without_it_is_skipped_by_those_that_need_it_alone(capability: str) -> None:
    found = lacking(WORKLOADS, study_of(), "bare", without(capability))
    assert set(found) == {name for name in NEEDY if capability in WORKLOADS[name].needs}
    for name, reason in found.items():
        assert reason.startswith(f"{name} needs ")


@pytest.mark.parametrize(
    ("options", "offered", "instead"),
    [
        ("network: user", {"user", "tap"}, "write `network: auto`"),
        ("network: auto", {"user"}, "run as root"),
    ],
)
def test_user_mode_network_is_reported_with_a_remedy(
    options: str, offered: set[str], instead: str
) -> None:
    text = f"""
study: proxied
baseline: bare
arms: {{bare: {{platform: bare}}, guest: {{platform: qemu, {options}}}}}
workloads: {{proxy: {{}}}}
"""
    study = parse_study(text.encode(), "s.yaml", build_catalog())
    able = replace(ABLE, network=frozenset(offered))
    (reason,) = lacking(WORKLOADS, study, "guest", able).values()
    assert reason.endswith(f"reaches others, which `user` is not: {instead}")


def test_missing_study_settings_are_reported_with_a_remedy() -> None:
    found = lacking(WORKLOADS, study_of(disk="0", memory="512MiB"), "bare", ABLE)
    assert found == {
        "fio": "fio needs a disk of the machine's own: write `shape: {disk: 1GiB}`",
        "kernel-compile": "kernel-compile needs a machine with at least 768 MiB of memory, "
        "not 512 MiB",
    }


def test_where_an_option_would_give_a_disk_the_reason_says_which() -> None:
    able = replace(without("disk"), no_disk="say by `disks` in which storage it is made")
    found = lacking(WORKLOADS, study_of(), "bare", able)["fio"]
    assert found.endswith("cannot give here: say by `disks` in which storage it is made")


def test_packages_added_by_a_study_are_not_in_live_images() -> None:
    text = """
study: adds
baseline: bare
arms: {bare: {platform: bare}}
workloads:
  plain: {workload: command, argv: [bzip2, --help]}
  more: {workload: command, argv: [jq, .], toolbox: {packages: [jq]}}
"""
    study = parse_study(text.encode(), "adds.yaml", build_catalog())
    able = replace(ABLE, toolbox=frozenset({"live"}))
    found = lacking(WORKLOADS, study, "bare", able)
    assert list(found) == ["more"]
    assert found["more"].startswith("more needs additions to the toolbox")
    assert lacking(WORKLOADS, study, "bare", ABLE) == {}


def test_workloads_unsuited_to_emulation_are_left_out_only_there() -> None:
    text = """
study: slow
shape: {memory: 1GiB}
baseline: bare
arms: {bare: {platform: bare}}
workloads:
  part: {workload: kernel-compile, targets: [lib/]}
  whole: {workload: kernel-compile, emulated: false}
"""
    study = parse_study(text.encode(), "slow.yaml", build_catalog())
    assert lacking(WORKLOADS, study, "bare", ABLE) == {}
    assert lacking(WORKLOADS, study, "bare", ABLE, emulated=True) == {
        "whole": "whole is left out where processors are emulated (`emulated: false`)"
    }


def test_spark_needs_more_memory_than_mapreduce_and_only_it_is_skipped() -> None:
    text = """
study: engines
baseline: bare
shape: {disk: 1GiB, memory: 1GiB}
arms: {bare: {platform: bare}}
scenarios: {two: {cluster: {slaves: 2}}}
workloads: {wordcount: {}, by-spark: {workload: wordcount, engine: [mapreduce, spark]}}
"""
    study = parse_study(text.encode(), "engines.yaml", build_catalog())
    assert lacking(WORKLOADS, study, "bare", ABLE) == {
        "by-spark": "by-spark needs a machine with at least 1.5 GiB of memory, not 1 GiB"
    }


KEYED = """
study: keyed
baseline: bare
arms: {bare: {platform: bare}, box: {platform: oci, runtime: runsc}}
workloads:
  pages: {workload: http-load}
  quick: {workload: tick, samples: 10}
  slow: {workload: tick, samples: 1000}
"""


def test_skipped_workload_is_named_by_its_study_key() -> None:
    study = parse_study(KEYED.encode(), "keyed.yaml", build_catalog())
    sandboxed = installed().platforms["oci"].stated(study.arms["box"].options).capabilities
    found = lacking(WORKLOADS, study, "box", replace(sandboxed, toolbox=frozenset({"tree"})))
    assert set(found) == {"pages"}
    assert found["pages"].startswith("pages needs a network")
    facts = {
        "bare": ArmFacts(usable=True),
        "box": ArmFacts(usable=True, lacks=found, neighbours=False),
    }
    plan = make_plan(study, 1, facts, {"": HostFacts(HostCpus((0, 1)))}, WORKLOADS)
    cells = sorted((b.arm, cell.workload) for b in plan.batches for cell in b.cells)
    assert cells == [
        ("bare", "pages"), ("bare", "quick"), ("bare", "slow"), ("box", "quick"), ("box", "slow")
    ]  # fmt: skip
    assert [(skip.arm, skip.workload) for skip in plan.skipped] == [("box", "pages")]


def test_one_of_two_keys_of_a_workload_may_be_skipped_alone() -> None:
    study = parse_study(KEYED.encode(), "keyed.yaml", build_catalog())
    facts = {
        "bare": ArmFacts(usable=True),
        "box": ArmFacts(usable=True, lacks={"slow": "it takes too long"}),
    }
    plan = make_plan(study, 1, facts, {"": HostFacts(HostCpus((0, 1)))}, WORKLOADS)
    box = [cell.workload for b in plan.batches if b.arm == "box" for cell in b.cells]
    assert sorted(box) == ["pages", "quick"]


@pytest.mark.parametrize(
    ("load", "capability"),
    [
        ("disk-load", "disk"),
        ("net-load", "network"),
        ("phased-load, parameters: {phases: [cpu-load, disk-load]}", "disk"),
    ],
)
def test_a_scenario_is_skipped_where_its_loads_cannot_run(load: str, capability: str) -> None:
    study = study_of(loads=f"[{{load: cpu-load}}, {{load: {load}}}]")
    assert lacking_loads(WORKLOADS, study, "bare", ABLE) == {}
    found = lacking_loads(WORKLOADS, study, "bare", without(capability))
    assert set(found) == {"crowded"}
    assert found["crowded"].startswith(f"its neighbours' {load.partition(',')[0]} needs a ")


@pytest.mark.parametrize(
    ("master", "who"), [("apart", "a slave, with 2"), ("with-first", "the master too, with 2")]
)
def test_a_cluster_of_slaves_with_too_little_memory_is_skipped_by_plan_already(
    master: str, who: str
) -> None:
    def reason_with(memory: str) -> str:
        text = (
            "study: few\nbaseline: bare\narms: {bare: {platform: bare}}\n"
            "shape: {memory: 1GiB, disk: 1GiB}\nworkloads: {terasort: {}}\n"
            f"scenarios: {{one: {{cluster: {{master: {master}, memory: {memory}}}}}}}\n"
        )
        study = parse_study(text.encode(), "few.yaml", build_catalog())
        return lacking_loads(WORKLOADS, study, "bare", ABLE).get("one", "")

    few = reason_with("512MiB")
    assert f"{who} tasks at a time" in few
    size = few.rpartition("memory: ")[2].partition("`")[0]
    assert reason_with(size) == ""


def outside_study(folder: Path, workloads: str = "{dfsio: {}}") -> Study:
    text = f"""
study: theirs
baseline: bare
shape: {{disk: 1GiB, memory: 2GiB}}
arms: {{bare: {{platform: bare}}}}
scenarios: {{theirs: {{cluster: {{external: {folder}}}}}}}
workloads: {workloads}
"""
    return parse_study(text.encode(), "theirs.yaml", build_catalog())


def test_folder_without_cluster_configuration_is_reported_first(
    tmp_path: Path,
) -> None:
    able = replace(ABLE, reaches_out=True)
    found = lacking_loads(WORKLOADS, outside_study(tmp_path), "bare", able)
    assert found["theirs"].startswith(f"{tmp_path} has no core-site.xml")
    assert found["theirs"].endswith("have as HADOOP_CONF_DIR")
    name = "<property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property>"
    for site in SITES:
        (tmp_path / site).write_text(f"<configuration>{name}</configuration>")
    assert lacking_loads(WORKLOADS, outside_study(tmp_path), "bare", able) == {}
    # An arm that cannot reach it gets that reason, whatever the folder says.
    (tmp_path / SITES[0]).unlink()
    found = lacking_loads(WORKLOADS, outside_study(tmp_path), "bare", ABLE)
    assert "exists already and is reached from the host" in found["theirs"]


def test_network_loads_next_to_an_existing_cluster_are_refused_by_the_plan(tmp_path: Path) -> None:
    name = "<property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property>"
    for site in SITES:
        (tmp_path / site).write_text(f"<configuration>{name}</configuration>")
    text = f"""
study: theirs
baseline: bare
shape: {{disk: 1GiB, memory: 2GiB}}
arms: {{bare: {{platform: bare}}}}
scenarios:
  net: {{cluster: {{external: {tmp_path}}}, neighbours: [{{load: net-load}}]}}
  cpu: {{cluster: {{external: {tmp_path}}}, neighbours: [{{load: cpu-load}}]}}
workloads: {{dfsio: {{}}}}
"""
    study = parse_study(text.encode(), "theirs.yaml", build_catalog())
    found = lacking_loads(WORKLOADS, study, "bare", replace(ABLE, reaches_out=True))
    assert list(found) == ["net"]
    assert found["net"].startswith("its neighbours' net-load needs a network of Tare's own")


def test_jobs_that_need_archives_are_skipped_on_an_existing_cluster(tmp_path: Path) -> None:
    workloads = (
        "{dfsio: {}, terasort: {}, wordcount: {engine: [mapreduce, spark]}, kmeans: {}, join: {}, "
        "aggregate: {}, hive: {workload: aggregate, engine: hive}}"
    )
    found = lacking(WORKLOADS, outside_study(tmp_path, workloads), "bare", ABLE)
    assert set(found) == {"wordcount", "kmeans", "join", "hive"}
    assert all(reason.startswith(f"{name} needs archives") for name, reason in found.items())


def ends_study() -> Study:
    text = """
study: ends
baseline: bare
shape: {memory: 1GiB}
arms: {bare: {platform: bare}}
scenarios:
  alone: {subject: {cpus: pinned}}
  loaded: {neighbours: [{load: net-load}]}
  two: {machines: {peer: {memory: 2GiB}}}
  slaves: {cluster: {slaves: 1, memory: 1GiB}, neighbours: [{load: net-load}]}
workloads:
  tick: {scenarios: [alone, loaded]}
  dfsio: {scenarios: [slaves]}
  http-load: {scenarios: [two]}
  proxy: {scenarios: [alone, two]}
"""
    return parse_study(text.encode(), "ends.yaml", build_catalog())


def test_a_link_on_an_isolated_network_needs_a_limit_of_its_cards() -> None:
    text = """
study: linked
baseline: bare
arms: {bare: {platform: bare}}
scenarios: {linked: {link: 1Gbit}}
workloads: {proxy: {}}
"""
    study = parse_study(text.encode(), "linked.yaml", build_catalog())
    isolated = replace(ABLE, network=frozenset({"isolated"}))
    found = lacking_loads(WORKLOADS, study, "bare", isolated)
    assert found["linked"].startswith("its link needs a limit of each card")
    limited = replace(isolated, limits_cards=True)
    assert lacking_loads(WORKLOADS, study, "bare", limited) == {}
    given = replace(limited, network=frozenset({"given"}))
    assert list(lacking_loads(WORKLOADS, study, "bare", given)) == ["linked"]


def test_ends_on_a_network_that_no_process_reaches_are_machines() -> None:
    study = ends_study()
    isolated = replace(ABLE, network=frozenset({"isolated"}))
    both = ("peer", "origin")
    found = own_ends(WORKLOADS, study, "bare", isolated)
    by_workload = {"http-load": ("peer",), "proxy": both, "dfsio": ("peer",)}
    assert found == (by_workload, {"loaded": ("peer",), "slaves": ("peer",)})
    assert own_ends(WORKLOADS, study, "bare", ABLE) == ({}, {})
    assert own_ends(WORKLOADS, study, "bare", without("network")) == ({}, {})


def test_ends_that_are_machines_are_placed_and_counted_by_the_plan() -> None:
    study = ends_study()
    by_workload, by_scenario = own_ends(
        WORKLOADS, study, "bare", replace(ABLE, network=frozenset({"isolated"}))
    )
    facts = ArmFacts(
        usable=True, max_vcpus=4, pinning=True, own_ends=by_workload, loads_ends=by_scenario
    )
    hosts = {"": HostFacts(HostCpus((0, 1, 2, 3)))}
    plan = make_plan(study, 1, {"bare": facts}, hosts, WORKLOADS)
    batches = {batch.scenario: batch for batch in plan.batches}
    ends = {
        name: {each.role: each.cpus for each in batch.placement.companions}
        for name, batch in batches.items()
    }
    assert ends == {
        "alone": {"peer": (2,), "origin": (1,)},
        "loaded": {"peer": ()},
        "two": {"peer": (), "origin": ()},
        # The machines of a cluster are its own ends, but not those of its neighbours' loads.
        "slaves": {"slave-1": (), "peer": ()},
    }
    gib = 1 << 30
    memory = {name: machines_of(study, batch)[""] for name, batch in batches.items()}
    assert memory == {
        "alone": [gib, gib, gib],
        "loaded": [gib, gib, gib],
        "two": [gib, 2 * gib, gib],
        "slaves": [gib, gib, gib, gib],
    }
    alone = make_plan(study, 1, {"bare": replace(facts, own_ends={})}, hosts, WORKLOADS)
    (batch,) = (each for each in alone.batches if each.scenario == "alone")
    assert batch.placement.companions == ()
