"""Applications: real programs of the toolbox, with inputs that Tare generates and verified outputs.

They are the applications of hwang2013 (table II): programs that people use, not programs that
stress one part of a computer. Each output is compared with the output that the same program wrote
when the toolbox was built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tare.units import Duration
from tare.workloads.applications.program import TIMES, times_of
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import per_second, shortened

INPUTS = "/usr/share/tare/inputs"
MIB = 1 << 20
SAME_EVERYWHERE = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}
"""Stops the C library's mathematics from using fused multiply-add, which rounds once less.

Processors without it (such as some emulated ones) would otherwise give different last bits. A
checksum could then not distinguish a wrong result from another rounding. Source: "Hardware
Capability Tunables", the GNU C Library manual.
"""


class ApplicationParameters(Parameters):
    """Number of runs, and their time limit."""

    runs: int = Field(
        default=3, ge=1, le=10_000, description="Number of runs; the median of their times counts."
    )
    timeout: Duration = Field(
        default=1800.0,
        gt=0,
        le=1e6,
        description="Time limit of one run. After it, the program and its children are killed, and "
        "the cell fails.",
    )


@dataclass(frozen=True)
class ProgramStep:
    """One program of an application; see the agent's ``program``."""

    argv: tuple[str, ...]
    stdin: str | None = None
    stdout: str | None = None
    codes: tuple[int, ...] = (0,)

    def request(self) -> dict[str, Any]:
        """Return the parameters for the agent."""
        asked: dict[str, Any] = {"argv": list(self.argv), "env": SAME_EVERYWHERE}
        optional = {"stdin": self.stdin, "stdout": self.stdout}
        asked |= {name: value for name, value in optional.items() if value is not None}
        return asked | ({"codes": list(self.codes)} if self.codes != (0,) else {})


def request_of(
    name: str,
    parameters: ApplicationParameters,
    *,
    prepare: Sequence[ProgramStep],
    step: ProgramStep,
    output: str,
    clean: Sequence[str],
) -> dict[str, Any]:
    """Return the request of one application: its steps, its check, its clean-up.

    Args:
        name: The name under which the toolbox knows the output's checksum.
        parameters: Runs and timeout.
        prepare: Programs that run once before, unmeasured.
        step: The measured program.
        output: The file whose checksum is verified.
        clean: Files that are removed before each run.
    """
    return {
        "prepare": [part.request() for part in prepare],
        "steps": [step.request()],
        "repeats": parameters.runs,
        "timeout_s": parameters.timeout,
        "clean": list(clean),
        "checks": [{"path": output, "expected": name}],
    }


def require_verified(result: Mapping[str, Any]) -> None:
    """Refuse a result whose output was not verified.

    Args:
        result: The agent's result; its ``checks`` list for each file whether it was verified.

    Raises:
        KeyError: The result lacks the checks.
        ValueError: The toolbox has no known checksum, or nothing was checked.
    """
    checks = result["checks"]
    if not isinstance(checks, list) or not checks:
        raise ValueError(f"checks is {shortened(checks)}, not a list of what was verified")
    for check in checks:
        if not isinstance(check, Mapping) or check.get("verified") is not True:
            raise ValueError(
                f"checks: {shortened(check)} was not verified: the toolbox does not know what is "
                "right; `tare image verify` checks whether it is damaged"
            )


@dataclass(eq=False)
class Application(Workload[ApplicationParameters]):
    """A program that does a fixed piece of work.

    Args:
        name: Its name in studies and reports.
        summary: Its purpose, in one sentence.
        step: The program.
        output: The file it writes, which is verified.
        amount: The work of one run, in the unit of ``rate`` multiplied by seconds.
        unit: The unit of ``rate``.
        meaning: The things that ``rate`` counts, for its summary.
        run_s: The approximate seconds of one run on a small computer; only for the plan.
        memory: The minimum memory of a machine that runs it, in bytes.
        prepare: Programs that run once before, unmeasured.
    """

    name: str
    summary: str
    step: ProgramStep
    output: str
    amount: float
    unit: str
    meaning: str
    run_s: float
    memory: int = 256 * MIB
    prepare: tuple[ProgramStep, ...] = ()
    parameters = ApplicationParameters
    needs = frozenset({"toolbox"})
    carried_out_by = "program"

    def __post_init__(self) -> None:
        rate = Metric("rate", self.unit, "higher", f"{self.meaning} per second.", headline=True)
        self.metrics = (rate, *TIMES)

    def request(self, parameters: ApplicationParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        return request_of(
            self.name,
            parameters,
            prepare=self.prepare,
            step=self.step,
            output=self.output,
            clean=(self.output,),
        )

    def expected_s(self, parameters: ApplicationParameters) -> float:
        """Estimate the seconds of one cell."""
        prepare_s = self.run_s if self.prepare else 0.0
        return parameters.runs * self.run_s + prepare_s

    def observe(
        self, parameters: ApplicationParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics; with a wrong output, the agent reports a failure instead of a result.

        Raises:
            KeyError: A value is missing.
            ValueError: The output was not verified, a value is not a finite number, or no time
                passed.
        """
        require_verified(result)
        return {"rate": per_second(self.amount, result, "wall_s"), **times_of(result)}


_TEXT_BYTES = 8 * MIB
_COMPRESSED = "/tmp/tare-text.bz2"

PROGRAMS: tuple[Application, ...] = (
    Application(
        "gnugo",
        "GNU Go plays both sides of a fixed opening on 13×13 points.",
        ProgramStep(
            ("gnugo", "--mode", "gtp", "--level", "1", "--seed", "1"),
            stdin=f"{INPUTS}/game.gtp",
            stdout="/tmp/tare-game.txt",
        ),
        "/tmp/tare-game.txt",
        amount=8,
        unit="1/s",
        meaning="Moves found",
        run_s=1.5,
    ),
    Application(
        "oggenc",
        "Ogg Vorbis encodes 20 s of synthesized stereo sound.",
        ProgramStep(
            (
                *("oggenc", "-Q", "--serial", "1", "-q", "5"),
                *("-o", "/tmp/tare-audio.ogg", f"{INPUTS}/audio.wav"),
            )
        ),
        "/tmp/tare-audio.ogg",
        amount=20 * 44_100 * 4,
        unit="B/s",
        meaning="Bytes of 16-bit samples encoded",
        run_s=0.5,
    ),
    Application(
        "bzip2-compress",
        "bzip2 compresses 8 MiB of generated text.",
        ProgramStep(("bzip2", "-9", "-c", f"{INPUTS}/text.txt"), stdout=_COMPRESSED),
        _COMPRESSED,
        amount=_TEXT_BYTES,
        unit="B/s",
        meaning="Bytes of text compressed",
        run_s=1.0,
    ),
    Application(
        "bzip2-decompress",
        "bzip2 decompresses 8 MiB of generated text.",
        ProgramStep(("bzip2", "-d", "-c", _COMPRESSED), stdout="/tmp/tare-text.txt"),
        "/tmp/tare-text.txt",
        amount=_TEXT_BYTES,
        unit="B/s",
        meaning="Bytes of text restored",
        run_s=0.5,
        prepare=(ProgramStep(("bzip2", "-9", "-c", f"{INPUTS}/text.txt"), stdout=_COMPRESSED),),
    ),
    Application(
        "tidy",
        "HTML Tidy repairs a page of 6000 ill-formed list items.",
        # Exit code 1 means warnings, and the page causes many.
        ProgramStep(
            ("tidy", "-quiet", "--show-warnings", "no", "-indent", "-wrap", "80"),
            stdin=f"{INPUTS}/page.html",
            stdout="/tmp/tare-page.html",
            codes=(0, 1),
        ),
        "/tmp/tare-page.html",
        amount=1,
        unit="1/s",
        meaning="Pages repaired",
        run_s=0.3,
    ),
    Application(
        "dcraw",
        "dcraw develops a raw picture of 2400×1600 pixels with its best interpolation.",
        ProgramStep(
            ("dcraw", "-c", "-q", "3", f"{INPUTS}/picture.dng"), stdout="/tmp/tare-picture.ppm"
        ),
        "/tmp/tare-picture.ppm",
        amount=2400 * 1600,
        unit="1/s",
        meaning="Pixels developed",
        run_s=1.0,
    ),
    Application(
        "povray",
        "POV-Ray renders 120 mirrors and glass balls with soft shadows at 320×240 pixels.",
        # POV-Ray writes the date into the file, in a comment; `grep` removes it.
        ProgramStep(
            (
                *("sh", "-c", 'povray "$@" | grep -av "^# "', "povray"),
                *(f"+I{INPUTS}/scene.pov", "+W320", "+H240", "+FP", "-D", "-GA", "+WT1", "+O-"),
            ),
            stdout="/tmp/tare-scene.ppm",
        ),
        "/tmp/tare-scene.ppm",
        amount=320 * 240,
        unit="1/s",
        meaning="Pixels rendered",
        run_s=1.5,
    ),
)
"""The applications with a fixed amount of work, whose rate is calculated from their time."""
