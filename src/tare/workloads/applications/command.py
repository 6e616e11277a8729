"""``command``: the user's own program, with its packages and files, and figures in its output."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from tare.errors import WorkloadFault
from tare.events.metric import Better, Kind
from tare.study.model.forms import PACKAGE, StudyPath, folder_of
from tare.units import Duration
from tare.workloads.additions import Additions
from tare.workloads.applications import figures, printed
from tare.workloads.applications.program import TIMES, times_of, writes
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import number, words

KEPT_BYTES = 128 << 10
"""Bytes of the output that are kept. The agent's message holds 1 MiB, and JSON may need 6 bytes for
one of them."""
ROOMS = ("/opt", "/srv", "/usr/local")
"""Folders to which files may be added: no package of the distribution has files in them (FHS 3.0).
"""
_NAME = r"^[a-z][a-z0-9.-]{0,39}$"
_POWER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?[eE][+-]?[0-9]{1,3}")
_TO_BOTH = 'exec "$@" 2>&1'
USER_TIME = Metric(
    "user-time", "s", "lower", "The part of the CPU time that the programs themselves used."
)


def _check_room(place: str) -> str:
    parts = place.split("/")
    roomy = any(place.startswith(f"{room}/") for room in ROOMS)
    if not roomy or any(part in ("", ".", "..") for part in parts[1:]) or not place.isprintable():
        raise ValueError(
            f"{place} is not allowed for your files in the toolbox: write an absolute path below "
            f"{', '.join(ROOMS)}"
        )
    return place


def _number(value: object) -> object:
    # YAML reads `1e6` as a text, and only `1.0e+6` as a number.
    return float(value) if isinstance(value, str) and _POWER.fullmatch(value) else value


Place = Annotated[str, Field(max_length=1024), AfterValidator(_check_room)]
Package = Annotated[str, PACKAGE]


class CommandToolbox(Parameters):
    """Additions to the toolbox, which all workloads of a study share."""

    packages: tuple[Package, ...] = Field(
        default=(),
        max_length=100,
        description="Packages of this computer's distribution; apt adds their dependencies. They "
        "are unpacked, not installed: none of their scripts runs.",
    )
    files: dict[Place, StudyPath] = Field(
        default_factory=dict,
        max_length=1000,
        description="Files and folders to add: the path in the toolbox (below `/opt`, `/srv` or "
        "`/usr/local`), and the path relative to the study. Executable files stay executable.",
    )


class CommandMetric(Parameters):
    """A figure in the program's output, found by `regex` or by `field`."""

    unit: figures.Unit = Field(
        description="The figure's unit after multiplication by `scale`. A unit that the program "
        "prints after the number, within the parentheses, takes precedence: `12 MiB/s`, `3us`, `45 "
        "%` and `1,234` are understood. Reports show seconds, bytes and the like with prefixes."
    )
    better: Better = Field(description="The direction of improvement.")
    regex: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="A regular expression (Rust's syntax) with one pair of parentheses around the "
        "number, or around the number and its unit. It is matched line by line; the last matching "
        "line counts.",
    )
    field: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="The number's path in the program's JSON, which is its whole output or the "
        "last line: keys separated by dots, indices in brackets, like `runs[0].latency.p99`. Put a "
        'key that contains dots in quotes, like fio\'s `percentile."99.000000"`.',
    )
    scale: Annotated[float, BeforeValidator(_number)] = Field(
        default=1.0,
        allow_inf_nan=False,
        description="Factor for the number, such as 1e-6 for microseconds.",
    )
    kind: Kind = Field(
        default="typical",
        description="`tail` for a high percentile, `maximum` for a maximum; these have intervals "
        "of their own kinds.",
    )
    headline: bool = Field(
        default=False,
        description="Show it on the report's first screen, and run blocks until it is precise. "
        "Default: `wall-time`, if no metric sets this.",
    )
    values: Literal["above-zero", "zero-or-more", "any"] | None = Field(
        default=None,
        description="The possible values; a cell with another value is withheld. Default: "
        "`above-zero` if `better` is `higher`, otherwise `any`. If values of 0 or less occur, Tare "
        "compares differences instead of ratios.",
    )
    summary: str = Field(default="", max_length=500, description="Its meaning, in one sentence.")

    @model_validator(mode="after")
    def _check_locator(self) -> Self:
        if (self.regex is None) == (self.field is None):
            raise ValueError("give either `regex` or `field` to locate the number")
        if self.regex is not None:
            printed.require_pattern(self.regex, groups=1)
        if self.field is not None:
            printed.require_field(self.field)
        if self.headline and self.better == "neither":
            raise ValueError("a metric that is neither better nor worse cannot be a headline")
        if self.scale == 0:
            raise ValueError("the scale must not be 0")
        return self

    def of(self, name: str) -> Metric:
        """Return the metric, named ``name`` as in the study."""
        where = f"`{self.regex or self.field}`"
        summary = self.summary or f"The value at {where} in its output."
        values = self.values or ("above-zero" if self.better == "higher" else "any")
        return Metric(
            name,
            figures.scale_of(self.unit)[0],
            self.better,
            summary,
            self.kind,
            self.headline,
            may_be_zero=values != "above-zero",
            may_be_negative=values == "any",
        )


class CommandCheck(Parameters):
    """Conditions of a valid run; otherwise the cell fails."""

    contains: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Text that its output must contain.",
    )
    regex: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="A regular expression (Rust's syntax) that a line of its output must match.",
    )
    file: str | None = Field(
        default=None,
        pattern=r"^/",
        max_length=1024,
        description="A file that each run must write; it is removed before.",
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="The required SHA-256 of `file`.",
    )
    status: tuple[int, ...] = Field(
        default=(0,), min_length=1, description="Exit codes that mean success."
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.sha256 is not None and self.file is None:
            raise ValueError("sha256 needs a file: write `file` too")
        if self.file is not None and (self.file == "/" or ".." in self.file.split("/")):
            raise ValueError(f"{self.file} is not a file that a run can write")
        if self.regex is not None:
            printed.require_pattern(self.regex)
        return self


class CommandParameters(Parameters):
    """The program, its requirements, and the figures in its output."""

    argv: tuple[str, ...] = Field(
        min_length=1,
        description="The program, by its name in the toolbox or a path in it, and its arguments. "
        "It sees the toolbox as its root. It can write to `/tmp` (in memory) and `/scratch` (the "
        "machine's own disk).",
    )
    toolbox: CommandToolbox = Field(
        default_factory=CommandToolbox,
        description="Packages and files that it needs in addition to the toolbox's.",
    )
    metrics: dict[Annotated[str, Field(pattern=_NAME)], CommandMetric] = Field(
        default_factory=dict,
        max_length=50,
        description="Figures in its output, by names of your own; the last run's count.",
    )
    check: CommandCheck = Field(
        default_factory=CommandCheck, description="Conditions of a valid run."
    )
    stderr: bool = Field(
        default=False,
        description="Include standard error in its output, because some programs write their "
        "figures there. A shell then starts it, which takes about a millisecond.",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Additional variables of its environment."
    )
    cwd: str = Field(
        default="/tmp", pattern=r"^/", description="Its working directory in the toolbox."
    )
    stdin: str | None = Field(
        default=None,
        description="A file of the toolbox as its standard input. Default: empty.",
    )
    runs: int = Field(default=1, ge=1, le=100_000, description="Number of runs.")
    timeout: Duration = Field(
        default=3600.0,
        gt=0,
        le=1e6,
        description="Time limit of one run. After it, the program and its children are killed, and "
        "the cell fails.",
    )
    expect: Duration = Field(
        default=5.0, gt=0, le=1e6, description="Approximate duration of one run, only for the plan."
    )

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> Self:
        taken = {metric.name for metric in (*TIMES, USER_TIME)} & set(self.metrics)
        if taken:
            raise ValueError(f"every program has the metric {min(taken)}; choose another name")
        source, folder = self.toolbox.files.get(self.argv[0]), folder_of(info)
        if source is not None and folder is not None and not os.access(folder / source, os.X_OK):
            raise ValueError(f"{source} is not executable: `chmod +x {folder / source}`")
        return self


class Command(Workload[CommandParameters]):
    """A program of the user's own, known only by the study's description."""

    name = "command"
    summary = (
        "A program of your own: Tare adds its packages and files to the toolbox, finds its figures "
        "in its output, and measures its time and resources."
    )
    parameters = CommandParameters
    needs = frozenset({"toolbox"})
    carried_out_by = "program"
    metrics = (TIMES[0]._replace(headline=True), TIMES[1], USER_TIME, *TIMES[2:])

    def metrics_for(self, parameters: CommandParameters) -> tuple[Metric, ...]:
        """Return the study's own metrics, and the metrics that every program has."""
        own = tuple(metric.of(name) for name, metric in parameters.metrics.items())
        if not any(metric.headline for metric in own):
            return (*own, *self.metrics)
        return (*own, *(metric._replace(headline=False) for metric in self.metrics))

    def adds(self, parameters: CommandParameters) -> Additions:
        """Return the packages and files that the study adds to the toolbox."""
        asked = parameters.toolbox
        files = {place: Path(source) for place, source in asked.files.items()}
        return Additions(frozenset(asked.packages), files)

    def program_of_study(self, parameters: CommandParameters) -> tuple[str, ...]:
        """Return the study's own program."""
        return parameters.argv

    def request(self, parameters: CommandParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        argv = list(parameters.argv)
        if parameters.stderr:
            argv = ["sh", "-c", _TO_BOTH, "sh", *argv]
        check = parameters.check
        step: dict[str, Any] = {"argv": argv, "cwd": parameters.cwd, "codes": list(check.status)}
        optional = {"env": parameters.env, "stdin": parameters.stdin}
        step |= {name: value for name, value in optional.items() if value}
        request: dict[str, Any] = {
            "steps": [step],
            "repeats": parameters.runs,
            "timeout_s": parameters.timeout,
            "keep": KEPT_BYTES,
        }
        if check.file is not None:
            request |= writes(check.file, check.sha256)
        return request

    def expected_s(self, parameters: CommandParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.expect * parameters.runs

    def observe(self, parameters: CommandParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the study's own metrics and the times, in SI units.

        Raises:
            KeyError: The agent's result lacks a field.
            ValueError: A time is not a finite number.
            WorkloadFault: The output fails the study's check, or lacks a metric; the message has
                the output's last lines.
        """
        output = words(result, "output")
        _require_right(parameters.check, output)
        found = _figures(parameters.metrics, output)
        return {**found, **times_of(result), USER_TIME.name: number(result, "user_s")}


def _require_right(check: CommandCheck, output: str) -> None:
    shown = printed.last_lines(output)
    if check.contains is not None and check.contains not in output:
        raise WorkloadFault(f"the output does not contain {check.contains!r}{shown}")
    if check.regex is not None and not printed.matches(output, check.regex):
        raise WorkloadFault(f"no line of the output matches `{check.regex}`{shown}")


def _figures(metrics: Mapping[str, CommandMetric], output: str) -> dict[str, float]:
    """Return each metric's figure in the program's output.

    Raises:
        WorkloadFault: A figure is missing, or is not a number.
    """
    by_field = any(metric.field is not None for metric in metrics.values())
    try:
        document = printed.json_of(output) if by_field else None
        return {name: _figure(metric, output, document) for name, metric in metrics.items()}
    except KeyError as error:
        raise WorkloadFault(
            f"the output has nothing at `{error.args[0]}`{printed.last_lines(output)}"
        ) from error
    except ValueError as error:
        raise WorkloadFault(f"{error}{printed.last_lines(output)}") from error


def _figure(metric: CommandMetric, output: str, document: Any) -> float:
    if metric.field is not None:
        text, name = printed.text_by_field(document, metric.field), metric.field
    else:
        pattern = str(metric.regex)
        text, name = printed.text_by_pattern(output, pattern), f"the match of `{pattern}`"
    return figures.figure(text, name, metric.unit, metric.scale)
