"""The page in a real browser: its scripts run under its own policy, and all that a reader does.

One browser serves all tests here, for starting it takes most of their time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.report_browser import (
    BEYOND,
    BROKEN_QUANTITIES,
    CHROMIUM,
    CUT,
    OPEN,
    OUTSIDE,
    OVERLAPS,
    Browser,
)
from report.report_page_reader import read
from report.report_synthetic import comparison_of, hostile, write_run
from tare.analysis import compare_every_pair, compare_runs, load_run
from tare.analysis.data.settings import Settings
from tare.analysis.model import Comparison
from tare.report import build_report
from tare.report.compare.changes import write_changes
from tare.report.page.links import anchor_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]

ROWS = "#effects > tbody > tr:not(.detail)"
TOPMOST = """
(() => {
  const dot = document.querySelector('[id$=-blocks-1] a[data-at] path');
  dot.scrollIntoView({block: 'center'});
  const box = dot.getBoundingClientRect();
  const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return hit.closest('a').dataset.at;
})()
"""
"""The block of the dot that a click on the first one hits; dots may overlap."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    folder = tmp_path_factory.mktemp("page")
    write_run(folder, series=False, statuses={3: {("oci", "switch"): "failed"}})
    run = load_run(folder)
    logs = folder / "machines" / run.machines[0].machine
    logs.mkdir(parents=True)
    (logs / "console.log").write_text("hello\n", encoding="utf-8")
    comparison = compare_every_pair(run)
    return build_report([run], comparison, folder), comparison


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose cells have series and counters, and a machine that ended by itself."""
    folder = tmp_path_factory.mktemp("counted")
    write_run(
        folder, blocks=3, counters=True, statuses={2: {("oci", "switch"): "failed"}},
        console=("Kernel panic", "not syncing"),
    )  # fmt: skip
    run = load_run(folder)
    for machine in run.machines:
        (folder / "machines" / machine.machine).mkdir(parents=True)
        (folder / "machines" / machine.machine / "console.log").write_text("hello\n")
    return build_report([run], compare_every_pair(run), folder)


@pytest.fixture
def page(browser: Browser, made: tuple[Path, Comparison]) -> Iterator[Browser]:
    browser.complaints.clear()
    browser.width(1200)
    browser.open(made[0])
    yield browser
    assert browser.complaints == []


def verdicts_of(effects: Any) -> list[tuple[str, str]]:
    return sorted((e.arm, e.verdict) for e in effects)


def shown(page: Browser) -> list[tuple[str, str]]:
    """Arm and verdict of each line of the table."""
    arms, verdicts = page.texts(f"{ROWS} td.c-arm"), page.texts(f"{ROWS} td.c-verdict")
    return sorted(
        (arm.removesuffix(" (emulated)"), word.split(":")[0])
        for arm, word in zip(arms, verdicts, strict=True)
    )


def test_the_scripts_run_under_the_pages_policy_and_nothing_goes_out(page: Browser) -> None:
    assert page.run("document.getElementById('theme').hidden") is False
    assert page.run("document.getElementById('explore').hidden") is False
    assert page.run("performance.getEntriesByType('resource').length") == 0
    before = page.run("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.run("getComputedStyle(document.body).backgroundColor") != before


def test_another_baseline_shows_the_verdicts_of_the_analysis(
    page: Browser, made: tuple[Path, Comparison]
) -> None:
    _, comparison = made
    assert comparison.pairs is not None
    assert shown(page) == verdicts_of(comparison.headlines)
    for arm in ("oci", "qemu-em"):
        page.choose("[name=base]", arm)
        against = [e for e in comparison.pairs.effects if e.baseline == arm]
        assert shown(page) == verdicts_of(against)
        assert "all pairs of arms together" in page.texts("#effects-about")[0]
        assert page.run("location.hash") == f"#base={arm}"


def test_filters_narrow_the_table_and_the_sections_below(page: Browser) -> None:
    whole = len(page.texts(ROWS))
    page.choose("[name=verdict]", "worse")
    assert 0 < len(page.texts(ROWS)) < whole
    assert {word for _, word in shown(page)} == {"worse"}
    page.choose("[name=arm]", "qemu-pv")
    assert {arm for arm, _ in shown(page)} == {"qemu-pv"}
    page.choose("[name=workload]", "switch")
    page.run(OPEN)
    assert len(page.texts("section[data-workload]")) > 0
    assert all("switch" in text for text in page.texts(f"{ROWS} td.c-what"))
    assert page.run(
        "[...document.querySelectorAll('section[data-workload]')].filter(e => e.checkVisibility())"
        ".map(e => e.dataset.workload).every(w => w === 'switch')"
    )
    assert page.run("location.hash") == "#arm=qemu-pv&workload=switch&verdict=worse"
    page.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    own = page.run(
        "[...document.querySelectorAll('section[data-workload] tr:not([data-effect]) td.c-arm')]"
        ".filter(e => e.checkVisibility()).map(e => e.textContent)"
    )
    assert own and set(own) <= {"bare", "bare-again", "qemu-pv (emulated)"}
    effects = page.run(
        "[...document.querySelectorAll('section[data-workload] tr[data-effect]')]"
        ".filter(e => e.checkVisibility()).map(e => e.querySelector('.c-verdict').textContent)"
    )
    assert effects and all(word.startswith("worse") for word in effects)
    summary = page.texts("#choose-said")[0]
    assert summary.startswith(f"{len(page.texts(ROWS))} effect")
    page.click("#choose [type=reset]")
    assert len(page.texts(ROWS)) == whole
    assert page.run("location.hash") == ""
    page.click("#choose [name=all]")
    assert len(page.texts(ROWS)) > whole


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_page_is_at_most_eight_screens_before_it_is_opened(
    page: Browser, width: int, height: int
) -> None:
    page.width(width, height)
    assert page.run("document.documentElement.scrollHeight") <= 8 * height
    first = page.run("document.querySelector('.arms').getBoundingClientRect().bottom")
    assert first <= 1.1 * height, "all answers are on the first screen"
    assert page.run("document.querySelector('.toc').checkVisibility()") is (width >= 1280)


@pytest.mark.parametrize("width", [1400, 1000, 390])
def test_every_bar_shows_its_interval_and_bars_of_a_page_have_one_scale(
    page: Browser, made: tuple[Path, Comparison], width: int
) -> None:
    page.width(width)
    with_interval = [cost for cost in made[1].resources if cost.interval is not None]
    shown = [text for text in page.texts(".cost small") if re.fullmatch(r".+ to .+", text)]
    assert len(shown) == len(with_interval) > 0
    cut = page.run(
        "[...document.querySelectorAll('.cost')].filter(card => [...card.children].some(e => "
        "e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > "
        "card.getBoundingClientRect().right + 1)).map(card => card.innerText)"
    )
    assert cut == []
    widths = page.run(
        "[...document.querySelectorAll('.cost svg')].map(e => e.getBoundingClientRect().width)"
    )
    assert max(widths) - min(widths) < 1


def test_a_cost_leads_to_its_metrics_and_an_entry_of_the_contents_opens_its_part(
    page: Browser,
) -> None:
    page.width(1400)
    page.click(".cost[data-choose='resource=memory&arm=oci']")
    assert (
        page.run("location.hash") == "#arm=oci&resource=memory"
        or page.run("location.hash") == "#resource=memory&arm=oci"
    )
    assert all("memory-bandwidth" in text for text in page.texts(f"{ROWS} td.c-what"))
    dimmed = page.run("document.querySelectorAll('figure svg a.dim').length")
    assert dimmed > 0, "figures show the choice as well"
    page.choose("[name=verdict]", "worse")
    assert page.texts("#effects tr.none") == ["No result matches these choices."]
    assert page.run("document.querySelectorAll('figure.empty').length") > 0
    assert page.run(
        "[...document.querySelectorAll('figure.empty')].every(e => getComputedStyle(e, "
        "'::before').content === '\"No mark matches these choices.\"')"
    )
    page.click(".toc a[href='#environment']")
    assert page.run("document.querySelector('[data-part=environment]').open") is True


def test_sorting_goes_up_down_and_back(page: Browser) -> None:
    study = page.texts(f"{ROWS} td.c-what")
    page.click("#effects th[data-sort=cost] button")
    assert page.run("document.querySelector('[data-sort=cost]').ariaSort") == "ascending"
    up = page.run("[...document.querySelectorAll('#effects tr[data-id]')].map(e => e.dataset.id)")
    page.click("#effects th[data-sort=cost] button")
    down = page.run("[...document.querySelectorAll('#effects tr[data-id]')].map(e => e.dataset.id)")
    assert up[0] == down[-1]
    assert up[-1] == down[0]
    page.click("#effects th[data-sort=cost] button")
    assert page.texts(f"{ROWS} td.c-what") == study


def test_a_dot_leads_to_its_own_block_with_the_cells_of_all_arms(page: Browser) -> None:
    page.run(OPEN)
    at = page.run(TOPMOST)
    page.click("[id$=-blocks-1] a[data-at] path")
    page.wait("document.getElementById('near') !== null")
    near, block = page.texts("#near")[0], at.removeprefix("0.")
    assert f"b00{block}/bare/" in near and f"b00{block}/bare-again/" in near, "the baseline's too"
    assert set(re.findall(r"b00\d/", near)) == {f"b00{block}/"}
    assert page.run("document.activeElement.getAttribute('aria-label')") == f"Block {block}"
    assert f"block={at}" in page.run("location.hash")
    page.press("Escape", 27)
    page.wait("document.getElementById('near') === null")
    assert page.run("document.activeElement.className") == "near-opens"
    assert page.texts("#detail"), "the effect stays open"
    page.press("Enter", 13, "\r")
    page.wait("document.getElementById('near') !== null")
    page.run("history.back()")
    page.wait("location.hash === ''")


def test_all_that_shows_one_boot_leads_to_its_block(browser: Browser, counted: Path) -> None:
    browser.complaints.clear()
    browser.width(1200)
    browser.open(counted)
    for mark, about in (
        ("svg[id$=-scatter] a[data-at] rect", "tick"),
        ("svg#monitoring-1 a[data-at] rect", ""),
    ):
        browser.click(mark)
        browser.wait("document.getElementById('near') !== null")
        near = browser.texts("#near")[0]
        assert about in near
        assert "CPU user 50.0 %" in near, "what the counters of its cells say"
        assert "console.log" in near
    browser.run(
        "document.querySelector('svg[id$=-tails] a').dispatchEvent("
        "new MouseEvent('click', {bubbles: true, cancelable: true}))"
    )
    browser.wait("document.getElementById('near') === null")
    assert browser.texts("#detail"), "a line is of all boots and leads to the effect"
    browser.choose("[name=workload]", "switch")
    browser.choose("[name=arm]", "oci")
    browser.click("#effects .opens")
    browser.wait("document.getElementById('detail') !== null")
    browser.click("#detail [data-at='0.2']")
    address, near = browser.run("location.hash"), browser.texts("#near")[0]
    assert "failed: the guest panicked" in near
    assert "Kernel panic" in near, "the last lines of a console that ended by itself"
    browser.width(390)
    browser.open(counted, address)
    assert browser.texts("#near")[0].split() == near.split()
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.complaints == []


def test_a_mark_leads_to_its_blocks_cells_logs_and_environment(
    page: Browser, made: tuple[Path, Comparison]
) -> None:
    path, comparison = made
    effect = next(e for e in comparison.headlines if e.arm == "oci" and e.key.workload == "switch")
    name = anchor_of(effect.key, effect.arm)
    page.click(f'figure svg a[href="#{name}"] path')
    page.wait("document.getElementById('detail') !== null")
    text = page.texts("#detail")[0]
    assert f"oci against bare: {effect.verdict}" in text
    assert text.count("b00") == 8, "a cell of each block"
    assert "failed: the guest panicked" in text
    assert page.run("document.activeElement.getAttribute('role')") == "region"
    assert page.run("location.hash").endswith(f"open={name}")
    leads = page.run("[...document.querySelectorAll('#detail .leads a')].map(e => e.hash)")
    assert "#environment" in leads
    assert "#lost" in leads
    first = comparison.runs[0].machines[0]
    page.run(f"location.hash = 'open={first_effect(comparison, first.arm)}'")
    page.wait("document.querySelector('#detail a[href^=machines]') !== null")
    link = page.run("document.querySelector('#detail a[href^=machines]').getAttribute('href')")
    assert (path.parent / link).read_text(encoding="utf-8") == "hello\n"


def first_effect(comparison: Comparison, arm: str) -> str:
    """The first effect in whose detail an arm's machines are listed."""
    pairs = comparison.pairs
    assert pairs is not None
    for effect in comparison.headlines:
        if effect.arm == arm:
            return anchor_of(effect.key, arm)
    found = next(e for e in pairs.effects if e.arm == comparison.baseline)
    return anchor_of(found.key, found.arm, found.baseline)


def test_a_link_leads_back_to_the_same_view(page: Browser, made: tuple[Path, Comparison]) -> None:
    page.choose("[name=base]", "oci")
    page.choose("[name=arm]", "qemu-em")
    page.click("#effects .opens")
    page.wait("document.getElementById('detail') !== null")
    address = page.run("location.hash")
    text = page.texts("#effects")[0]
    page.open(made[0], address)
    assert page.texts("#effects")[0] == text
    assert page.run("document.querySelector('[name=base]').value") == "oci"


def test_the_keyboard_is_enough(page: Browser) -> None:
    page.run("document.querySelector('#effects .opens').focus()")
    page.press("Enter", 13, "\r")
    page.wait("document.getElementById('detail') !== null")
    assert page.run("document.activeElement.className") == "opens"
    assert page.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.press("Escape", 27)
    page.wait("document.getElementById('detail') === null")
    assert page.run("document.activeElement.className") == "opens"
    unnamed = page.run(
        "[...document.querySelectorAll('#explore select, #explore input')]"
        ".filter(e => !e.labels.length).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("width", [1400, 1200, 390])
def test_nothing_is_cut_and_no_labels_overlap(page: Browser, width: int, tmp_path: Path) -> None:
    page.width(width)
    page.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run(OVERLAPS) == []
    assert page.run(BEYOND) == []
    assert page.run(OUTSIDE) == []
    assert page.run(BROKEN_QUANTITIES) == []
    if width >= 1200:
        assert page.run(CUT) == []
    page.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_print_keeps_the_tables_and_drops_the_choices(page: Browser) -> None:
    page.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert page.run("document.getElementById('choose').checkVisibility()") is False
        assert len(page.texts(ROWS)) > 0
        names = ["What", "Arm", "Verdict", "Cost", "Cost factor"]
        assert page.texts("#effects th") == names, "columns keep their names"
        assert page.pdf().startswith(b"%PDF")
    finally:
        page.ask("Emulation.setEmulatedMedia", media="")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two runs, in the same folder as the first run's own page."""
    place = tmp_path_factory.mktemp("two")
    found = []
    for number, name in enumerate(("before", "after")):
        write_run(place / name, series=False, run=f"r{number}", seed=number + 1)
        run = load_run(place / name)
        settings = Settings.of([run])
        arms = {"bare": settings, "oci": settings.against("oci", run.arms)}
        found.append({arm: compare_runs(run, how) for arm, how in arms.items()})
    comparison = compare_every_pair(found[0]["bare"].runs[0])
    build_report(comparison.runs, comparison, place / "before")
    write_changes(found[0], found[1], "bare", place / "page.html")
    return place / "page.html"


def test_two_runs_are_chosen_from_and_linked_as_one_is(browser: Browser, two: Path) -> None:
    browser.complaints.clear()
    browser.width(1200)
    browser.open(two)
    whole = len(browser.texts(ROWS))
    assert whole > 3
    assert "from the first run to the second" in browser.texts("#effects-about")[0]
    browser.choose("[name=base]", "oci")
    assert "one family" in browser.texts("#effects-about")[0]
    assert "oci" not in browser.texts(f"{ROWS} td.c-arm")
    browser.choose("[name=arm]", "qemu-pv")
    assert {arm.split(" ")[0] for arm in browser.texts(f"{ROWS} td.c-arm")} == {"qemu-pv"}
    browser.click("#effects .opens")
    browser.wait("document.getElementById('detail') !== null")
    text = browser.texts("#detail")[0]
    assert "r0, 1" in text and "r1, 1" in text, "the blocks of both runs"
    address = browser.run("location.hash")
    shown_then = browser.texts("#effects")[0]
    browser.open(two, address)
    assert browser.texts("#effects")[0] == shown_then
    link = browser.run("document.querySelector('#detail .leads a[href*=report]').href")
    report, _, name = link.removeprefix("file://").partition("#")
    assert Path(report) == two.parent / "before" / "report.html"
    assert f'id="{name}"' in Path(report).read_text() or name in Path(report).read_text()
    for width in (1200, 390):
        browser.width(width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(OVERLAPS) == []
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("document.getElementById('choose').checkVisibility()") is False
        assert browser.pdf().startswith(b"%PDF")
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")
    assert browser.complaints == []


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    arms = {"bare": _bare(), hostile(): _bare()}
    write_run(tmp_path, arms=arms, aa=None, blocks=2, series=False)
    comparison = comparison_of(tmp_path)
    path = build_report(comparison.runs, comparison, tmp_path)
    browser.complaints.clear()
    browser.open(path)
    browser.click("#effects .opens")
    browser.wait("document.getElementById('detail') !== null")
    assert hostile()[:24] in browser.texts("#detail")[0]
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert browser.complaints == []


def _bare() -> Any:
    from report.report_values import ArmSpec

    return ArmSpec()


def test_without_scripts_the_marks_lead_to_rows(made: tuple[Path, Comparison]) -> None:
    path, comparison = made
    html = path.read_text(encoding="utf-8")
    page = read(html)
    names = {e.attributes["id"] for e in page.elements if "id" in e.attributes}
    leads = set(re.findall(r'<a href="#(e[0-9a-f]{12})" tabindex="-1">', html))
    assert leads >= {anchor_of(e.key, e.arm) for e in comparison.headlines}
    assert leads <= names
