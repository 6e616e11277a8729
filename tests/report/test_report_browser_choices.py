"""What a reader chooses on the page, in a real browser: scenarios, every column, and of two runs.

As in `test_report_browser`, one browser serves all tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from report.report_browser import CHROMIUM, OPEN, Browser
from report.report_synthetic import write_run
from tare.analysis import compare_every_pair, load_run
from tare.analysis.data.rundata import RunData
from tare.events.results import FinishedCell
from tare.report import build_report
from tare.report.compare.changes import write_changes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]

ROWS = "#effects > tbody > tr:not(.detail)"
IDS = "[...document.querySelectorAll('#effects tr[data-id]')].map(e => e.dataset.id)"
SECTIONS = (
    "[...document.querySelectorAll('section[data-workload]')].filter(e => e.checkVisibility())"
    ".map(e => e.dataset.scenario)"
)


def in_two_scenarios(run: RunData) -> RunData:
    """Return the run with all its cells once more, in a scenario ``loaded``."""
    copies = tuple(
        FinishedCell(
            replace(
                done.result,
                scenario="loaded",
                cell=done.result.cell.replace("/pinned/", "/loaded/"),
            ),
            done.observed,
            done.saved,
        )
        for done in run.counted
    )
    counted = (*run.counted, *copies)
    return replace(run, counted=counted, cells=tuple(done.result for done in counted))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        found.width(1200)
        yield found


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    run = in_two_scenarios(load_run(write_run(folder, series=False)))
    return build_report([run], compare_every_pair(run), folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    runs = [
        load_run(write_run(folder / str(seed), series=False, run=f"r{seed}", seed=seed))
        for seed in (1, 2)
    ]
    found = [{"bare": compare_every_pair(run)} for run in runs]
    write_changes(found[0], found[1], "bare", folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def pages(one: Path, two: Path) -> dict[str, Path]:
    return {"one": one, "two": two}


def test_a_scenario_narrows_the_table_and_the_sections(browser: Browser, one: Path) -> None:
    browser.open(one)
    browser.run(OPEN)
    whole = len(browser.texts(ROWS))
    assert set(browser.run(SECTIONS)) == {"pinned", "loaded"}
    browser.choose("[name=scenario]", "loaded")
    assert len(browser.texts(ROWS)) == whole / 2
    assert all("loaded" in text for text in browser.texts(f"{ROWS} td.c-what"))
    assert set(browser.run(SECTIONS)) == {"loaded"}
    assert browser.run("location.hash") == "#scenario=loaded"
    browser.open(one, "#scenario=pinned")
    browser.run(OPEN)
    assert set(browser.run(SECTIONS)) == {"pinned"}
    assert len(browser.texts(ROWS)) == whole / 2


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("column", ["what", "arm", "verdict", "cost"])
def test_every_column_sorts_both_ways_and_a_link_keeps_it(
    browser: Browser, pages: dict[str, Path], name: str, column: str
) -> None:
    browser.complaints.clear()
    browser.open(pages[name])
    browser.run(f"document.querySelector('#effects th[data-sort={column}] button').focus()")
    as_served = browser.run(IDS)
    browser.press("Enter", 13, "\r")
    up, shown = browser.run(IDS), browser.texts(f"{ROWS} td.c-{column}")
    assert sorted(up) == sorted(as_served)
    if column in ("what", "arm"):
        assert shown == sorted(shown) and len(set(shown)) > 1
    browser.press("Enter", 13, "\r")
    down = browser.run(IDS)
    assert down != up
    if column in ("what", "arm"):
        assert browser.texts(f"{ROWS} td.c-{column}") == sorted(shown, reverse=True)
    address = browser.run("location.hash")
    assert address == f"#sort=-{column}"
    browser.open(pages[name], address)
    assert browser.run(IDS) == down
    assert browser.complaints == []


def test_verdicts_of_two_runs_filter_the_table_and_the_keyboard_opens_a_row(
    browser: Browser, two: Path
) -> None:
    browser.open(two)
    verdicts = browser.run(
        "[...document.querySelector('[name=verdict]').options].map(e => e.value).filter(e => e)"
    )
    whole, seen = len(browser.texts(ROWS)), 0
    assert verdicts
    for verdict in verdicts:
        browser.choose("[name=verdict]", verdict)
        texts = browser.texts(f"{ROWS} td.c-verdict")
        assert texts and all(text.split(":")[0] == verdict for text in texts)
        seen += len(texts)
    assert seen == whole
    browser.click("#choose [type=reset]")
    browser.run("document.querySelector('#effects .opens').focus()")
    browser.press("Enter", 13, "\r")
    browser.wait("document.getElementById('detail') !== null")
    assert browser.run("document.activeElement.className") == "opens"
    browser.press("Escape", 27)
    browser.wait("document.getElementById('detail') === null")
    assert browser.run("location.hash") == ""


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize(
    "address",
    ["#arm=gone", "#base=gone", "#verdict=worst&workload=none", "#sort=nothing", "#%", "#a=%E0%A4"],
)
def test_a_link_to_what_is_not_there_shows_all_that_is(
    browser: Browser, pages: dict[str, Path], name: str, address: str
) -> None:
    """Such as one of the study's last report, which had an arm that this one skipped."""
    browser.complaints.clear()
    browser.open(pages[name])
    whole = browser.run(IDS)
    assert whole
    browser.open(pages[name], address)
    assert browser.run(IDS) == whole
    chosen = "[...document.querySelectorAll('#choose select')].map(e => e.selectedIndex)"
    assert set(browser.run(chosen)) == {0}
    browser.run("location.hash = 'arm=nobody'")
    browser.wait(f"{IDS}.length === {len(whole)}")
    assert browser.complaints == []
