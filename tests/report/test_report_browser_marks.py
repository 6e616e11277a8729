"""Marks of jobs and of a load balancer lead to their blocks, and every page is fit for paper.

As in `test_report_browser`, in a real browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from report.report_browser import BEYOND, CHROMIUM, CUT, OVERLAPS, Browser
from report.report_jobs import SLAVES, write_jobs_run
from report.report_proxied import write_proxied_run
from report.report_synthetic import write_run
from tare.analysis import compare_every_pair, load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.model import Key
from tare.events.results import SeriesEntry
from tare.references.published import load_reference
from tare.report import build_report
from tare.report.page.links import anchor_of

pytestmark = pytest.mark.xdist_group("browser")

PAPER = 718
"""The pixels of a sheet of A4 between Chromium's margins of a centimetre."""
CONTROLS = (
    "[...document.querySelectorAll('header button, select, input, #choose, details:not([open])')]"
    ".filter(e => e.checkVisibility()).map(e => e.outerHTML.slice(0, 80))"
)
DARK = (
    "['body', 'figure svg text'].filter(one => { const e = document.querySelector(one); "
    "const c = getComputedStyle(e)[one === 'body' ? 'color' : 'fill'].match(/\\d+/g); "
    "return c.slice(0, 3).some(each => each > 120); })"
)


def with_response_times(run: RunData, folder: Path) -> RunData:
    """Return the run with the response times of each proxied cell, second by second."""
    times = {f"{name}_ns": [1e3, 2e3, 3e3] for name in ("mean", "median", "p99", "max")}
    counts = {"time_ns": [0, 10**9, 2 * 10**9], "completed": [10, 20, 30], "failed": [0, 0, 0]}
    path = folder / "responses.parquet"
    pl.DataFrame(counts | times).write_parquet(path)
    entries = tuple(
        SeriesEntry(
            *(c.run, c.cell, c.block, c.arm, c.scenario, c.workload, c.parameters),
            *(1, "subject", "responses", path, {}, 3),
        )
        for c in run.cells
    )
    return replace(run, series=entries)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of jobs with a paper's values, of a load balancer, and of a run with most sections."""
    folder = tmp_path_factory.mktemp("marks")
    jobs = load_run(write_jobs_run(folder / "jobs"))
    proxied = load_run(write_proxied_run(folder / "proxied"))
    other = load_run(
        write_run(
            folder / "other", blocks=8, counters=True, statuses={3: {("oci", "tick"): "failed"}}
        )
    )
    made = {
        "jobs": (jobs, [load_reference("li2013")]),
        "proxied": (with_response_times(proxied, folder), []),
        "other": (other, []),
    }
    return {
        name: build_report([run], compare_every_pair(run), folder / name, references)
        for name, (run, references) in made.items()
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def figures_of(page: str) -> dict[str, str]:
    """Return the page's drawings by their ids."""
    return dict(re.findall(r'<svg [^>]*?id="([\w-]+)" role="img"(.*?)</svg>', page, re.DOTALL))


@pytest.mark.parametrize("name", ["jobs", "proxied", "other"])
def test_every_figure_has_marks_that_lead_to_an_effect(pages: dict[str, Path], name: str) -> None:
    text = pages[name].read_text(encoding="utf-8")
    figures = figures_of(text)
    assert len(figures) > 10
    for drawn, inside in figures.items():
        leads = re.findall(r'<a href="#(e[0-9a-f]{12})"', inside)
        assert leads, drawn
        assert all(f'id="{lead}"' in text for lead in leads), drawn


def test_a_mark_leads_to_the_effect_of_its_own_metric(pages: dict[str, Path]) -> None:
    figures = figures_of(pages["proxied"].read_text(encoding="utf-8"))
    for figure, metric in (
        ("rate", "requests"),
        ("band", "bandwidth"),
        ("time", "cpu-per-request"),
    ):
        own = {
            anchor_of(Key("proxied", "proxy", f'{{"size":{size}}}', "subject", metric), "kvm")
            for size in (0, 8192)
        }
        assert any(name in figures[f"load-balancer-{figure}"] for name in own), figure
    figures = figures_of(pages["jobs"].read_text(encoding="utf-8"))
    where = ("one", "terasort", '{"size":1000000000}', "subject")
    assert anchor_of(Key(*where, "sort-time"), "kvm") in figures["phases-1"]
    # The figure over sizes is of clusters of one size.
    read = {anchor_of(Key(scenario, *where[1:], "sort-bytes-read"), "kvm") for scenario in SLAVES}
    assert any(anchor in figures["paper-li2013-figure-6-b"] for anchor in read)


def test_a_line_over_the_seconds_of_a_load_leads_to_its_block(pages: dict[str, Path]) -> None:
    figures = figures_of(pages["proxied"].read_text(encoding="utf-8"))
    for name in ("rate-time", "response-time", "p99-time"):
        leads = re.findall(r'data-at="([\d.]+)"', figures[f"load-balancer-{name}"])
        # Each arm has a line and a name.
        assert leads == ["0.3"] * 6, name


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)")
class TestInABrowser:
    """The same with a mouse, and on paper."""

    @pytest.mark.parametrize(
        ("name", "mark", "label"),
        [
            ("jobs", "#phases-1 a rect", "against bare"),
            ("jobs", "#paper-li2013-figure-6-a a rect", "against bare"),
            ("proxied", "#load-balancer-time a rect", "against bare"),
            ("proxied", "#load-balancer-band a path", "against bare"),
            ("proxied", "#load-balancer-rate-time a rect", "b003/"),
        ],
    )
    def test_a_bar_leads_to_its_blocks_and_their_cells(
        self, browser: Browser, pages: dict[str, Path], name: str, mark: str, label: str
    ) -> None:
        browser.complaints.clear()
        browser.width(1200)
        browser.open(pages[name])
        browser.click(mark)
        browser.wait("document.getElementById('detail') !== null")
        assert label in browser.texts("#detail")[0]
        assert browser.texts("#detail")[0].count("b00") >= 3, "a cell of each block"
        if not browser.texts("#near"):
            browser.click("#detail .near-opens")
            browser.wait("document.getElementById('near') !== null")
        assert "b00" in browser.texts("#near")[0]
        assert browser.complaints == []

    @pytest.mark.parametrize("name", ["jobs", "proxied", "other"])
    def test_on_paper_nothing_is_cut_nor_asks_to_be_pressed(
        self, browser: Browser, pages: dict[str, Path], name: str
    ) -> None:
        browser.width(PAPER)
        browser.open(pages[name])
        browser.run("document.documentElement.dataset.theme = 'dark'")
        browser.ask("Emulation.setEmulatedMedia", media="print")
        try:
            assert browser.run("document.documentElement.scrollWidth") <= PAPER
            assert browser.run(CUT) == []
            assert browser.run(CONTROLS) == []
            assert browser.run(DARK) == [], "ink is dark on paper, whatever the dress on screen"
            heads = "[...document.querySelectorAll('h2, h3, h4, caption')]"
            after = "getComputedStyle(e).breakAfter"
            assert browser.run(f"{heads}.filter(e => {after} !== 'avoid').length") == 0
            # What is pressed to sort is painted only once: of each page's headings it would lack.
            pressed = "[...document.querySelectorAll('#effects th button')]"
            shown = "getComputedStyle(e).display === 'contents'"
            assert browser.run(f"{pressed}.every(e => {shown})")
        finally:
            browser.ask("Emulation.setEmulatedMedia", media="")

    @pytest.mark.parametrize("name", ["jobs", "proxied"])
    def test_a_phone_shows_all_of_it(
        self, browser: Browser, pages: dict[str, Path], name: str
    ) -> None:
        browser.width(390)
        browser.open(pages[name])
        browser.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        assert browser.run("document.documentElement.scrollWidth") <= 390
        assert browser.run(OVERLAPS) == []
        assert browser.run(BEYOND) == []
