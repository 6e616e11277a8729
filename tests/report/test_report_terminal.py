"""The comparison in a terminal: all of it without one, what fits with one."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from report.report_synthetic import comparison_of, write_run
from report.report_values import ArmSpec
from tare.analysis.model import Comparison
from tare.report import render_comparison


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("terminal")
    write_run(folder, series=False)
    return comparison_of(folder)


def printed(comparison: Comparison, width: int | None = None, *, every: bool = False) -> str:
    out = io.StringIO()
    console = (
        Console(file=out)
        if width is None
        else Console(file=out, width=width, force_terminal=True, color_system="standard")
    )
    render_comparison(comparison, console, every=every)
    return out.getvalue()


def test_without_a_terminal_it_is_plain_and_whole(comparison: Comparison) -> None:
    text = printed(comparison)
    assert "\x1b" not in text
    for effect in comparison.headlines:
        row = next(
            line for line in text.splitlines()
            if effect.key.workload in line and f" {effect.arm} " in line
        )  # fmt: skip
        assert effect.verdict in row or any(e.arm == effect.arm for e in comparison.headlines)
    assert "qemu-pv (emulated)" in text
    assert "…" not in text


@pytest.mark.parametrize("width", [40, 60, 84, 100, 120, 160])
def test_comparison_fits_any_terminal(comparison: Comparison, width: int) -> None:
    for line in printed(comparison, width).splitlines():
        assert len(Text.from_ansi(line).plain.rstrip()) <= width
    words = Text.from_ansi(printed(comparison, width)).plain.split()
    assert "equivalent" in " ".join(words)


def test_all_metrics_on_request(comparison: Comparison) -> None:
    assert "duration max" not in printed(comparison)
    assert "duration max" in printed(comparison, every=True)


def test_brackets_in_names_are_not_markup(tmp_path: Path) -> None:
    arms = {"bare": ArmSpec(), "[bold]x[/bold]": ArmSpec("oci")}
    write_run(tmp_path, arms=arms, aa=None, blocks=2, series=False, title="[red]title[/]")
    text = printed(comparison_of(tmp_path))
    assert "[bold]x[/bold]" in text
    assert "[red]title[/]" in text


def test_arms_whose_cells_failed_are_named(tmp_path: Path) -> None:
    """Some cells of one arm failed, and all of another arm, which therefore has no row."""
    lost = {
        block: {("oci", "switch"): "failed"}
        | {
            ("qemu-em", name): "failed"
            for name in ("tick", "switch", "memory-bandwidth", "numeric-sort")
        }
        for block in range(1, 7)
    }
    write_run(tmp_path, series=False, statuses=lost, blocks=6)  # type: ignore[arg-type]
    text = " ".join(printed(comparison_of(tmp_path)).split())
    assert (
        "oci: 12 of its 30 cells failed, in 6 of 6 boots (54 % to 100 % of all boots); of" in text
    )
    assert "qemu-em (emulated) has no values: 30 cells failed (the guest panicked)." in text


def test_a_run_with_nothing_to_compare_is_reported(tmp_path: Path) -> None:
    write_run(tmp_path, arms={"bare": ArmSpec()}, aa=None, blocks=2, series=False)
    assert "No comparison" in printed(comparison_of(tmp_path))
