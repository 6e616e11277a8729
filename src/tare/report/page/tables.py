"""Tables: defined once, written as CSV, LaTeX and HTML with the same numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, NamedTuple, TypeVar

from tare.analysis.effects.results import Interval, cost_ends
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.model import Better
from tare.analysis.statistics.maxt import least_blocks
from tare.report.figures.svg import legible
from tare.report.page.words import ratio_interval

Row = TypeVar("Row")
Raw = str | int | float | bool | None


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table.

    Args:
        key: The column's name in CSV files.
        raw: The value for CSV, in SI units and full precision.
        title: The heading on the page; empty: the column is only in CSV.
        text: The value as text for readers; None: ``raw`` as text.
        numeric: Whether the values are aligned right.
    """

    key: str
    raw: Callable[[Row], Raw]
    title: str = ""
    text: Callable[[Row], str] | None = None
    numeric: bool = False

    def shown(self, row: Row) -> str:
        """Return the value as people read it."""
        if self.text is not None:
            return legible(self.text(row))
        value = self.raw(row)
        return "–" if value is None else legible(str(value))


class Cell(NamedTuple):
    """One value as shown: its text, whether it is aligned right, and its style."""

    text: str
    numeric: bool = False
    tone: str = ""


@dataclass(frozen=True)
class ShownTable:
    """A table ready for a page: headings, rows of cells, a caption."""

    caption: str
    headings: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    tones: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Columns and rows, with a name for the files and a caption.

    Args:
        name: The files' name without its suffix.
        caption: The caption.
        columns: The columns in order.
        rows: The rows in order.
        tone: Returns the style of a row on the page, such as ``emulated``.
        anchor: Returns a row's name in links; empty: links cannot lead to it.
    """

    name: str
    caption: str
    columns: tuple[Column[Row], ...]
    rows: tuple[Row, ...]
    tone: Callable[[Row], str] = lambda _: ""
    anchor: Callable[[Row], str] = lambda _: ""

    def texts_of(self, row: Row) -> dict[str, str]:
        """Return the texts of a row as shown, by the columns' keys."""
        texts = self._read(row)
        return {column.key: text for column, text in zip(self._titled, texts, strict=True)}

    def shown(
        self, hide: Iterable[str] = (), rows: Sequence[Row] | None = None, *, named: bool = False
    ) -> ShownTable:
        """Return the table for the page, without the columns whose keys are in ``hide``.

        Args:
            hide: Keys of columns to leave out.
            rows: The rows to show; None: all.
            named: Whether links may lead to the rows. Only one table of a page may set this.
        """
        hidden = frozenset(hide)
        columns = [(n, c) for n, c in enumerate(self._titled) if c.key not in hidden]
        chosen = self.rows if rows is None else tuple(rows)
        return ShownTable(
            caption=self.caption,
            headings=tuple(Cell(c.title, c.numeric) for _, c in columns),
            rows=tuple(
                tuple([Cell(texts[n], c.numeric, c.key) for n, c in columns])
                for texts in map(self._read, chosen)
            ),
            tones=tuple(self.tone(row) for row in chosen),
            names=tuple(self.anchor(row) for row in chosen) if named else (),
        )

    def unvaried(self, *keys: str) -> tuple[str, ...]:
        """Return those of the given keys whose columns have the same value in every row."""
        asked = [column for column in self.columns if column.key in keys]
        return tuple(c.key for c in asked if len({c.raw(row) for row in self.rows}) == 1)

    @cached_property
    def _titled(self) -> tuple[Column[Row], ...]:
        return tuple(c for c in self.columns if c.title)

    @cached_property
    def _texts(self) -> dict[int, tuple[str, ...]]:
        """The texts of each row, by the row's ``id()``, so that page and files agree."""
        return {id(row): tuple([c.shown(row) for c in self._titled]) for row in self.rows}

    def _read(self, row: Row) -> tuple[str, ...]:
        texts = self._texts.get(id(row))
        return tuple(c.shown(row) for c in self._titled) if texts is None else texts

    def csv(self) -> str:
        """Return the table as CSV: a header line, decimal point ``.``, empty for missing values.

        Text that a spreadsheet would take for a formula gets an apostrophe in front.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        raws = [column.raw for column in self.columns]
        for row in self.rows:
            values = [raw(row) for raw in raws]
            writer.writerow([v if isinstance(v, float) else _csv(v) for v in values])
        return out.getvalue()

    def latex(self) -> str:
        r"""Return the table as a LaTeX ``table`` with booktabs rules, for ``\input``."""
        layout = "".join("r" if c.numeric else "l" for c in self._titled)
        lines = [
            "% \\usepackage{booktabs} in the preamble; text is UTF-8.",
            "\\begin{table}",
            f"  \\caption{{{latex_text(self.caption)}}}",
            f"  \\label{{tab:{self.name}}}",
            f"  \\begin{{tabular}}{{{layout}}}",
            "    \\toprule",
            f"    {_latex_row(c.title for c in self._titled)}",
            "    \\midrule",
            *(f"    {_latex_row(self._read(row))}" for row in self.rows),
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
            "",
        ]
        return "\n".join(lines)


def interval_columns(
    interval: Callable[[Row], Interval | None],
    blocks: Callable[[Row], int | None],
    prefix: str = "",
    better: Callable[[Row], Better] = lambda _: "neither",
) -> tuple[Column[Row], ...]:
    """Return columns for a ratio's interval: its ends and method in files, one cell on the page.

    If few blocks happen to be alike, their interval is too narrow. Like a verdict, an interval is
    therefore shown only if there are enough blocks to reach p < 0.05.

    Args:
        interval: Returns a row's interval; None if it has none.
        blocks: Returns the number of blocks behind the interval.
        better: Returns the direction that is an improvement. The page shows the interval of a
            cost.
        prefix: The prefix of the columns' names in files, for a table with several intervals.
    """

    def shown(row: Row) -> Interval | None:
        return interval(row) if (blocks(row) or 0) >= least_blocks(LEVEL) else None

    def part(of: Callable[[Interval], float | str]) -> Callable[[Row], float | str | None]:
        return lambda row: None if (found := shown(row)) is None else of(found)

    def read(row: Row) -> str:
        found = shown(row)
        return ratio_interval(cost_ends(found.low, found.high, better(row)) if found else None)

    return (
        Column(f"{prefix}low", part(lambda found: found.low)),
        Column(f"{prefix}high", part(lambda found: found.high)),
        Column(f"{prefix}method", part(lambda found: found.method), "Interval", read),
    )


def _csv(value: Raw) -> Raw:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = legible(value).replace("\r\n", "\n").replace("\r", "\n")
        return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t"} else text
    return value


_LATEX = str.maketrans(
    {
        "\\": "\\textbackslash{}",
        "{": "\\{",
        "}": "\\}",
        "$": "\\$",
        "&": "\\&",
        "#": "\\#",
        "%": "\\%",
        "_": "\\_",
        "^": "\\textasciicircum{}",
        "~": "\\textasciitilde{}",
        "<": "\\textless{}",
        ">": "\\textgreater{}",
        "|": "\\textbar{}",
        '"': "\\textquotedbl{}",
        "×": "\\ensuremath{\\times}",
        "∞": "\\ensuremath{\\infty}",
        "÷": "\\ensuremath{\\div}",
        "→": "\\ensuremath{\\rightarrow}",
        "’": "'",
        "±": "\\ensuremath{\\pm}",
        "µ": "\\ensuremath{\\mu}",
        "–": "--",
        "…": "\\dots{}",
        "\n": " ",
        "\r": " ",
        "\t": " ",
    }
)


@lru_cache(maxsize=4096)
def latex_text(text: str) -> str:
    """Return ``text`` escaped so that LaTeX prints it literally."""
    return legible(text).translate(_LATEX)


def _latex_row(cells: Iterable[str]) -> str:
    # A row that begins with "[" would be read as the optional argument of the previous line break.
    return "{}" + " & ".join(latex_text(cell) for cell in cells) + " \\\\"
