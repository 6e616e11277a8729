"""The published values: every table counted, values checked by hand against the sources."""

from pathlib import Path

import pytest
import yaml

from tare.errors import InputError
from tare.references.printed import in_si
from tare.references.published import (
    PublishedTable,
    Reference,
    known_references,
    load_reference,
    parse_reference,
    references_folder,
)
from tare.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]

TABLES = {
    # number: (scenario, workload, arms with values, columns)
    1: ("one-to-all", "switch", 1, 2),
    2: ("one-to-all", "tick", 6, 1),
    3: ("one-to-all", "switch", 6, 2),
    4: ("one-to-one", "tick", 6, 1),
    5: ("one-to-one", "switch", 6, 2),
    6: ("contention-cpu", "tick", 6, 1),
    7: ("contention-cpu", "switch", 8, 2),
    8: ("contention-memory", "tick", 8, 1),
    9: ("contention-memory", "switch", 8, 2),
    10: ("all-to-all-cpu", "tick", 6, 1),
    11: ("all-to-all-cpu", "switch", 6, 2),
    12: ("all-to-all-memory", "tick", 6, 1),
    13: ("all-to-all-memory", "switch", 6, 2),
    14: ("two-to-all-memory", "tick", 6, 1),
    15: ("two-to-all-memory", "switch", 6, 2),
}

DEDUCED = "Table (number lost), extracted as figure 9"

BY_HAND = {
    # (table, arm): seconds, read from the published text
    (1, "bare"): (11.2e-6, 11.45e-6),
    (2, "esxi-hw"): (59.61e-3,),
    (3, "xen-pv"): (15.27e-6, 17.2e-6),
    (4, "esxi-hw"): (185.7e-3,),
    (5, "hyperv-pv"): (1.24e-3, 1.47e-3),
    (6, "xen-hw"): (30.16e-3,),
    (6, "xen-hw-1ms"): (7.44e-3,),
    (7, "xen-hw"): (30.08e-3, 30.1e-3),
    (7, "xen-hw-1ms"): (1.08e-3, 1.09e-3),
    (7, "xen-pv"): (30.06e-3, 30.07e-3),
    (7, "xen-pv-1ms"): (1.06e-3, 1.07e-3),
    (7, "esxi-hw"): (1.95e-3, 2.26e-3),
    (8, "xen-hw"): (30.18e-3,),
    (8, "xen-hw-1ms"): (8.53e-3,),
    (8, "xen-pv"): (30.15e-3,),
    (8, "xen-pv-1ms"): (7.3e-3,),
    (8, "esxi-hw"): (286.5e-3,),
    (9, "hyperv-hw"): (6.8e-3, 6.86e-3),
    (9, "hyperv-pv"): (6.72e-3, 5.24e-3),
    (9, "xen-hw"): (30.1e-3, 30.11e-3),
    (9, "xen-hw-1ms"): (1.1e-3, 1.1e-3),
    (9, "xen-pv"): (30.08e-3, 30.09e-3),
    (9, "xen-pv-1ms"): (1.08e-3, 1.09e-3),
    (9, "esxi-hw"): (2.62e-3, 2.8e-3),
    (10, "esxi-hw"): (51.4e-3,),
    (11, "esxi-hw"): (45.45e-6, 124.8e-6),
    (12, "hyperv-hw"): (15.18e-3,),
    (13, "hyperv-pv"): (87e-6, 393e-6),
    (14, "xen-pv"): (32e-6,),
    (15, "xen-hw"): (42.7e-6, 35.2e-6),
}


@pytest.fixture(scope="module")
def comparison() -> Reference:
    return load_reference("fayyad2013")


@pytest.fixture(scope="module")
def tables(comparison: Reference) -> dict[int, PublishedTable]:
    return {table.table: table for table in comparison.tables if table.table}


@pytest.mark.parametrize("number", TABLES)
def test_every_table_is_there_with_all_its_values(
    tables: dict[int, PublishedTable], number: int
) -> None:
    scenario, workload, arms, columns = TABLES[number]
    table = tables[number]
    assert (table.scenario, table.workload) == (scenario, workload)
    assert (len(table.rows), len(table.columns)) == (arms, columns)
    assert all(len(values) == columns for values in table.rows.values())


def test_nothing_else_is_there(tables: dict[int, PublishedTable]) -> None:
    assert sorted(tables) == sorted(TABLES)
    assert sum(len(values) for t in tables.values() for values in t.rows.values()) == 138


@pytest.mark.parametrize(("number", "arm"), BY_HAND)
def test_values_are_those_of_the_source(
    tables: dict[int, PublishedTable], number: int, arm: str
) -> None:
    assert tables[number].rows[arm] == pytest.approx(BY_HAND[number, arm], rel=1e-12)


def test_rows_that_the_source_lost_are_named_and_have_no_values(
    tables: dict[int, PublishedTable],
) -> None:
    lost = {(number, arm) for number, table in tables.items() for arm in table.lost}
    assert lost == {(6, "xen-pv"), (6, "xen-pv-1ms")}
    assert not {"xen-pv", "xen-pv-1ms"} & set(tables[6].rows)


def test_the_bare_machine_is_the_fastest_in_every_table(comparison: Reference) -> None:
    for table in comparison.tables:
        assert comparison.baseline is not None
        bare = table.rows[comparison.baseline]
        for values in table.rows.values():
            assert all(value >= base for value, base in zip(values, bare, strict=True))


def test_orders_that_the_source_speaks_of(tables: dict[int, PublishedTable]) -> None:
    for number, table in tables.items():
        rows = table.rows
        if number > 1:
            assert rows["hyperv-pv"][0] < rows["hyperv-hw"][0], number
        if "xen-pv" in rows:
            assert rows["xen-pv"][0] < rows["xen-hw"][0], number
        if "xen-hw-1ms" in rows:
            assert rows["xen-hw-1ms"][0] < rows["xen-hw"][0], number
    # Memory load disturbs more than CPU load, and three neighbours more than one.
    for more, less in ((8, 6), (12, 10), (12, 14)):
        shared = set(tables[more].rows) & set(tables[less].rows) - {"bare"}
        assert all(tables[more].rows[arm] > tables[less].rows[arm] for arm in shared)


def test_all_values_have_the_size_of_a_latency(tables: dict[int, PublishedTable]) -> None:
    for table in tables.values():
        assert table.unit == "s"
        for values in table.rows.values():
            assert all(10e-6 <= value < 0.3 for value in values)


def test_facts_of_the_text(comparison: Reference) -> None:
    facts = comparison.facts
    assert facts["busy-loop"].value == 68e-6
    assert (facts["tick"].value, facts["tick"].to) == (8e-6, 10e-6)
    assert facts["switch-least"].value == 0.43e-6
    assert facts["long-view-samples"].value == 50e6
    assert facts["memory-load-block"].value == 9e6
    assert all(fact.section and fact.says for fact in facts.values())


def test_the_other_source_agrees_wherever_it_can_be_read(
    tables: dict[int, PublishedTable],
) -> None:
    other = load_reference("fayyad2013-hyperv")
    same = {"emulated": "hyperv-hw", "enlightened": "hyperv-pv", "bare": "bare"}
    legible = [table for table in other.tables if table.place != DEDUCED]
    assert len(legible) == 3
    for table in legible:
        twin = next(
            t
            for t in tables.values()
            if (t.scenario, t.workload) == (table.scenario, table.workload)
        )
        assert {same[arm]: values for arm, values in table.rows.items()} == {
            arm: twin.rows[arm] for arm in same.values()
        }


def test_a_table_whose_scenario_is_a_deduction_says_so() -> None:
    other = load_reference("fayyad2013-hyperv")
    (table,) = (table for table in other.tables if table.place == DEDUCED)
    assert table.rows["emulated"] == (3.53e-3, 1.24e-3)
    assert (table.scenario, "deduction" in table.remark) == ("one-to-all", True)


@pytest.mark.parametrize("name", known_references())
def test_references_name_what_tare_measures(name: str) -> None:
    for table in load_reference(name).tables:
        workload = WORKLOADS[table.workload]
        metric = next(metric for metric in workload.metrics if metric.name == table.metric)
        assert metric.unit == table.unit
        for column in table.columns:
            workload.parameters.model_validate(column)


@pytest.mark.parametrize("name", known_references())
def test_every_printed_value_keeps_its_printed_unit(name: str) -> None:
    data = yaml.safe_load((references_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    printed = {"s": ("us", "ms"), "B/s": ("MB/s",)}
    for table in data.get("tables", ()):
        for values in table["rows"].values():
            units = printed[table.get("unit", "s")]
            assert all(str(value).split()[1] in units for value in values)


def test_rates_are_read_in_bytes_a_second() -> None:
    one, four = load_reference("hwang2013").tables
    assert (one.rows["kvm"], four.rows["kvm"]) == ((2.963e9,), (3.21e9,))
    assert load_reference("li2013").facts["write-cvm"].value == 69e6


def test_haproxys_published_figures_name_the_figures_that_they_are_compared_with() -> None:
    reference = load_reference("haproxy2012")
    facts = reference.facts
    assert facts["hyperv-legacy"].value == 1500
    assert (facts["vsphere-realtek"].value, facts["vsphere-e1000e"].value) == (20_000, 55_000)
    # A physical card of the server: no arm with an emulated card is compared with it.
    assert all("physical card" in facts[f"vsphere-{card}"].says for card in ("realtek", "e1000e"))
    assert (facts["xen-ovs"].value, facts["xen-ovs-netback"].value) == (8000, 0.6)
    assert "not emulated" in reference.reading
    assert not reference.tables
    setup = (fact.setup or fact.none or fact.here for fact in facts.values())
    assert all(setup), "why a run has nothing for it, or where it has"
    # Each names the figure or the comment that it is about.
    assert all(fact.of for fact in facts.values())
    stated = {name for fact in facts.values() if fact.section == "comments" for name in fact.of}
    assert stated == {each.name for each in reference.exhibits if each.view == "time-spent"}


def test_haproxys_figures_stand_by_their_names_in_their_order() -> None:
    names = [each.name for each in load_reference("haproxy2012").exhibits if each.figure]
    assert names == [
        f"Figure {name}"
        for name in (
            "native_performance",
            "hyperv_performance",
            "vsphere_performance",
            "xen41_performance",
            "xenserver60_performance",
            "http_connections_comparison",
            "bandwith_comparison",
            "performance_loss_comparison",
        )
    ]


def test_a_fact_says_on_how_many_machines_where_and_with_how_much_data() -> None:
    facts = load_reference("li2013").facts
    write, runs = facts["write-kvm"], facts["runs"]
    assert (write.machines, write.placement) == (4, "one host")
    assert (write.data, write.data_to) == (5e9, 25e9)
    assert (runs.machines, runs.data) == (None, None)
    stated = {(facts[name].section, facts[name].value) for name in facts}
    # A value that the source states twice and differently is listed twice.
    assert {("I", 0.15), ("III.A", 0.157), ("abstract", 0.46), ("III.B", 0.486)} <= stated


def test_the_package_holds_the_references_of_the_checkout() -> None:
    assert known_references() == (
        "fayyad2013",
        "fayyad2013-hyperv",
        "haproxy2012",
        "hwang2013",
        "li2013",
    )
    assert references_folder().resolve() == ROOT / "src" / "tare" / "references"
    # The build does not follow links by itself, only with an explicit pattern.
    assert '"src/tare/references/*.yaml"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError) as caught:
        load_reference("fayad2013")
    assert "did you mean 'fayyad2013'" in str(caught.value)
    assert "fayyad2013-hyperv" in str(caught.value)
    with pytest.raises(InputError, match="known references"):
        load_reference("../../etc/passwd")


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [("11.45 us", "s", 1.145e-05), ("68us", "s", 6.8e-05), ("9 MB", "B", 9e6), (1.5, "1", 1.5)],
)
def test_printed_values_become_si(value: object, unit: str, expected: float) -> None:
    assert in_si(value, unit) == expected


@pytest.mark.parametrize("value", ["4.35", 4.35, "4.35 m", "ms", "-1 ms", "1e3 ms", "4,35 ms"])
def test_a_value_without_a_unit_as_printed_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="unit as printed"):
        in_si(value, "s")


GOOD = """\
reference: x
title: A title
authors: [Someone]
published: nowhere
baseline: bare
arms:
  bare: {label: Bare}
  vm: {label: A machine}
scenarios:
  alone: {number: 1, subject: any}
tables:
  - table: 1
    scenario: alone
    workload: switch
    metric: latency-max
    columns: [{threads: 2}]
    rows:
      bare: [1 us]
      vm: [2 us]
studies: [realtime]
"""


def test_a_small_reference_is_read() -> None:
    assert parse_reference(GOOD.encode(), "x.yaml").tables[0].rows["vm"] == (2e-6,)


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("vm: [2 us]", "wm: [2 us]", "x.yaml:19:7: tables[0].rows.wm: is not an arm"),
        ("vm: [2 us]", "vm: [2 us, 3 us]", "x.yaml:19:11: tables[0].rows.vm: 2 values"),
        ("vm: [2 us]", "vm: [0 us]", "x.yaml:19:11: tables[0].rows.vm: a published value"),
        ("      bare: [1 us]\n", "", "x.yaml:18:7: tables[0].rows: the baseline"),
        ("scenario: alone", "scenario: alon", "x.yaml:13:15: tables[0].scenario: there is no"),
        ("table: 1", "place: ''", "x.yaml:12:5: tables[0]: has neither"),
        ("baseline: bare", "baseline: bear", "x.yaml:5:11: baseline: is not an arm"),
        ("studies: [realtime]\n", "", "x.yaml:1:1: needs either `studies`, or `no_study`"),
        ("title: A", "titel: A", "x.yaml:2:1: titel: unknown key; did you mean 'title'?"),
        ("vm: [2 us]", "vm: [2]", "unit as printed"),
        ("      vm: [2 us]", "      vm: [2 us]\n      vm: [3 us]", "x.yaml:20:7"),
    ],
)
def test_a_mistake_is_reported_with_its_place(old: str, new: str, where: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        parse_reference(GOOD.replace(old, new).encode(), "x.yaml")
    assert where in str(caught.value)
