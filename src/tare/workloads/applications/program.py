"""``program``: any program of the toolbox, run and timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.units import Duration
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import numbers, per_second

TIMES: tuple[Metric, ...] = (
    Metric(
        "wall-time",
        "s",
        "lower",
        "Time of one run from start to end: the median of the runs.",
        may_be_zero=False,
    ),
    Metric(
        "cpu-time",
        "s",
        "lower",
        "CPU time of one run and its children, user and system together: the median of the runs.",
    ),
    Metric("system-time", "s", "lower", "The part of the CPU time that the kernel used."),
    Metric("max-rss", "B", "neither", "Peak resident memory of one process."),
)
"""The metrics of every program."""


def times_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of `TIMES` from the agent's result, in seconds and bytes.

    Raises:
        KeyError: A value is missing.
        ValueError: A value is not a finite number.
    """
    return numbers(
        result,
        {
            "wall-time": "wall_s",
            "cpu-time": "cpu_s",
            "system-time": "system_s",
            "max-rss": "max_rss_bytes",
        },
    )


class ProgramParameters(Parameters):
    """The program, its arguments and surroundings, and the number of runs."""

    argv: tuple[str, ...] = Field(
        min_length=1,
        description="The program, by its name in the toolbox or a path in it, and its arguments. "
        "It sees the toolbox as its root. It can write to `/tmp` (in memory) and `/scratch` (the "
        "machine's own disk).",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Additional variables of its environment."
    )
    cwd: str = Field(
        default="/tmp", pattern=r"^/", description="Its working directory in the toolbox."
    )
    stdin: str | None = Field(
        default=None, description="A file as its standard input. Default: empty."
    )
    stdout: str | None = Field(
        default=None, description="A file for its standard output. Default: discarded."
    )
    output: str | None = Field(
        default=None, description="A file that it must write; it is removed before."
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="The required SHA-256 of `output`; otherwise the cell fails.",
    )
    codes: tuple[int, ...] = Field(
        default=(0,), description="Exit codes that mean success; otherwise the cell fails."
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


def writes(path: str, sha256: str | None) -> dict[str, Any]:
    """Return the fields of a request that remove a file before each run and verify it after.

    Args:
        path: The file's path in the machine.
        sha256: The required SHA-256 (hex) of the file; None: it need only exist.
    """
    check = {"path": path} if not sha256 else {"path": path, "sha256": sha256}
    return {"checks": [check], "clean": [path]}


class Program(Workload[ProgramParameters]):
    """Any program of the toolbox."""

    name = "program"
    summary = "A program of the toolbox that the study names, with its time and resources."
    parameters = ProgramParameters
    needs = frozenset({"toolbox"})
    metrics = (
        Metric(
            "rate", "1/s", "higher", "Runs per second: one divided by `wall-time`.", headline=True
        ),
        *TIMES,
    )

    def request(self, parameters: ProgramParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        step: dict[str, Any] = {"argv": list(parameters.argv), "cwd": parameters.cwd}
        optional = {
            "env": parameters.env,
            "stdin": parameters.stdin,
            "stdout": parameters.stdout,
            "codes": list(parameters.codes),
        }
        step |= {name: value for name, value in optional.items() if value}
        request: dict[str, Any] = {
            "steps": [step],
            "repeats": parameters.runs,
            "timeout_s": parameters.timeout,
        }
        if parameters.output is not None:
            request |= writes(parameters.output, parameters.sha256)
        return request

    def expected_s(self, parameters: ProgramParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.expect * parameters.runs

    def observe(self, parameters: ProgramParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics, in seconds and bytes.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number, or no time passed.
        """
        return {"rate": per_second(1.0, result, "wall_s"), **times_of(result)}
