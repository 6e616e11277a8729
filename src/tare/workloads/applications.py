"""Applications: real programs of the toolbox on inputs that Tare made, each output verified.

They are the applications of seed 002 (table II): what people run, rather than what stresses one
part. What a program writes is compared with what the same program wrote when the toolbox was built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from tare.study.quantities import Duration
from tare.workloads.base import Metric, Parameters
from tare.workloads.program import TIMES, times_of
from tare.workloads.values import finite, own, per_second, shortened, words

INPUTS = "/usr/share/tare/inputs"
MIB = 1 << 20
NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:E-?[0-9]{1,2})?"
"""A number as C and Java print it, of a size that any rate may have."""

SAME_EVERYWHERE = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}
"""Keeps the C library's mathematics from fused multiply-add, which rounds once less.

A processor that lacks it (as emulated ones may) would otherwise give other last bits, and a
checksum could not tell a wrong result from another rounding. Source: "Hardware Capability
Tunables", the GNU C Library manual.
"""


class ApplicationParameters(Parameters):
    """How often it runs, and how long that may take."""

    runs: int = Field(
        default=3, ge=1, le=10_000, description="Runs; the median of their times counts."
    )
    timeout: Duration = Field(
        default=1800.0,
        gt=0,
        le=1e6,
        description="One run that takes longer is killed with all its children, and has failed.",
    )


class TimedParameters(ApplicationParameters):
    """How long it measures itself, and how often."""

    runs: int = Field(
        default=1, ge=1, le=10_000, description="Runs; the last one's own figures count."
    )
    duration: Duration = Field(
        default=1.0,
        ge=0.001,
        le=3600,
        description="The least time for which each part of it measures itself.",
    )


@dataclass(frozen=True)
class Step:
    """One program of an application; see the agent's ``program``."""

    argv: tuple[str, ...]
    stdin: str | None = None
    stdout: str | None = None
    codes: tuple[int, ...] = (0,)

    def request(self) -> dict[str, Any]:
        """Return what the agent is told."""
        told: dict[str, Any] = {"argv": list(self.argv), "env": SAME_EVERYWHERE}
        optional = {"stdin": self.stdin, "stdout": self.stdout}
        told |= {name: value for name, value in optional.items() if value is not None}
        return told | ({"codes": list(self.codes)} if self.codes != (0,) else {})


def request_of(
    name: str,
    parameters: ApplicationParameters,
    *,
    prepare: Sequence[Step],
    step: Step,
    output: str,
    clean: Sequence[str],
) -> dict[str, Any]:
    """Return the request of one application: its steps, its check, its clean-up.

    Args:
        name: The name under which the toolbox knows the output's checksum.
        parameters: Runs and timeout.
        prepare: Run once, unmeasured.
        step: What is measured.
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
    """Refuse a result whose output was compared with nothing.

    Args:
        result: What the agent told; its ``checks`` say of each file whether it was verified.

    Raises:
        KeyError: It does not say what was checked.
        ValueError: The toolbox did not know what is right, or nothing was checked.
    """
    checks = result["checks"]
    if not isinstance(checks, list) or not checks:
        raise ValueError(f"checks is {shortened(checks)}, not a list of what was verified")
    for check in checks:
        if not isinstance(check, Mapping) or check.get("verified") is not True:
            raise ValueError(
                f"checks: {shortened(check)} was not verified: the toolbox does not know what is "
                "right; `tare image verify` tells whether it is damaged"
            )


@dataclass(eq=False)
class Application:
    """A program that does a fixed piece of work.

    Args:
        name: Its name in studies and reports.
        summary: What it does, in one sentence.
        step: The program.
        output: The file it writes, which is verified.
        amount: How much one run does, in the unit of ``rate`` times a second.
        unit: The unit of ``rate``.
        meaning: What ``rate`` counts, for its summary.
        run_s: About how long one run takes on a small computer; only for the plan.
        memory: Least memory of a machine that runs it, in bytes.
        prepare: What is run once before, unmeasured.
    """

    name: str
    summary: str
    step: Step
    output: str
    amount: float
    unit: str
    meaning: str
    run_s: float
    memory: int = 256 * MIB
    prepare: tuple[Step, ...] = ()
    parameters: type[Parameters] = ApplicationParameters
    realtime: bool = False
    needs: frozenset[str] = frozenset({"toolbox"})
    carried_out_by: str = "program"
    metrics: tuple[Metric, ...] = field(init=False)

    def __post_init__(self) -> None:
        rate = Metric("rate", self.unit, "higher", f"{self.meaning} per second.", headline=True)
        self.metrics = (rate, *TIMES)

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        return request_of(
            self.name,
            own(ApplicationParameters, parameters),
            prepare=self.prepare,
            step=self.step,
            output=self.output,
            clean=(self.output,),
        )

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of one cell."""
        prepare_s = self.run_s if self.prepare else 0.0
        return own(ApplicationParameters, parameters).runs * self.run_s + prepare_s

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; a wrong output never gets here (the agent fails it).

        Raises:
            KeyError: Something is missing.
            ValueError: The output was not verified, a value is no finite number, or no time passed.
        """
        require_verified(result)
        return {"rate": per_second(self.amount, result, "wall_s"), **times_of(result)}


_TEXT_BYTES = 8 * MIB
_COMPRESSED = "/tmp/tare-text.bz2"
_AES = ("-K", "00112233445566778899aabbccddeeff", "-iv", "0f0e0d0c0b0a09080706050403020100")

PROGRAMS: tuple[Application, ...] = (
    Application(
        "gnugo",
        "GNU Go plays both sides of a fixed opening on 13×13 points.",
        Step(
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
        Step(
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
        Step(("bzip2", "-9", "-c", f"{INPUTS}/text.txt"), stdout=_COMPRESSED),
        _COMPRESSED,
        amount=_TEXT_BYTES,
        unit="B/s",
        meaning="Bytes of text compressed",
        run_s=1.0,
    ),
    Application(
        "bzip2-decompress",
        "bzip2 decompresses what it made of 8 MiB of generated text.",
        Step(("bzip2", "-d", "-c", _COMPRESSED), stdout="/tmp/tare-text.txt"),
        "/tmp/tare-text.txt",
        amount=_TEXT_BYTES,
        unit="B/s",
        meaning="Bytes of text restored",
        run_s=0.5,
        prepare=(Step(("bzip2", "-9", "-c", f"{INPUTS}/text.txt"), stdout=_COMPRESSED),),
    ),
    Application(
        "tidy",
        "HTML Tidy repairs a page of 6000 ill-formed list items.",
        # 1 stands for warnings, which the page is full of.
        Step(
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
        "dcraw develops a raw picture of 2400×1600 pixels by its best interpolation.",
        Step(("dcraw", "-c", "-q", "3", f"{INPUTS}/picture.dng"), stdout="/tmp/tare-picture.ppm"),
        "/tmp/tare-picture.ppm",
        amount=2400 * 1600,
        unit="1/s",
        meaning="Pixels developed",
        run_s=1.0,
    ),
    Application(
        "povray",
        "POV-Ray renders 120 mirrors and glass balls with soft shadows in 320×240 pixels.",
        # It writes the date into the file, as a comment, which is no part of the picture.
        Step(
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
"""Those whose work is fixed, so that a rate follows from their time."""


class OpensslAes:
    """OpenSSL's own measurement of a cipher."""

    name = "openssl-aes"
    summary = "OpenSSL encrypts blocks of 16 KiB by AES-128-CBC; it measures its rate itself."
    parameters: type[Parameters] = TimedParameters
    realtime = False
    needs = frozenset({"toolbox"})
    memory = 192 * MIB
    carried_out_by = "program"
    metrics: tuple[Metric, ...] = (
        Metric("rate", "B/s", "higher", "Bytes encrypted per second, as told.", headline=True),
        *TIMES,
    )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        asked = own(TimedParameters, parameters)
        output = "/tmp/tare-text.aes"
        # That the cipher is right is proven on a file, once.
        encrypt = ("openssl", "enc", "-aes-128-cbc", *_AES, "-in", f"{INPUTS}/text.txt")
        seconds = str(max(1, round(asked.duration)))
        speed = ("openssl", "speed", "-elapsed", "-seconds", seconds, "-bytes", "16384")
        return request_of(
            self.name,
            asked,
            prepare=(Step((*encrypt, "-out", output)),),
            step=Step((*speed, "-evp", "aes-128-cbc")),
            output=output,
            clean=(),
        )

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of one cell."""
        asked = own(TimedParameters, parameters)
        return asked.runs * (max(1.0, asked.duration) + 0.2)

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; OpenSSL tells thousands of bytes per second.

        Raises:
            KeyError: Its table is missing.
            ValueError: The cipher's output was not verified, or a value is no finite number.
        """
        require_verified(result)
        found = re.search(rf"^AES-128-CBC[ \t]+({NUMBER})k", words(result, "output"), re.MULTILINE)
        if found is None:
            raise KeyError("output: AES-128-CBC")
        return {"rate": finite(found[1], "output: AES-128-CBC") * 1000, **times_of(result)}


class Scimark:
    """SciMark 2 on the Java virtual machine."""

    name = "scimark"
    summary = "SciMark 2.0 on the JVM: five numeric kernels, compiled while they run."
    parameters: type[Parameters] = TimedParameters
    realtime = False
    needs = frozenset({"toolbox"})
    memory = 384 * MIB
    carried_out_by = "program"
    kernels: Mapping[str, str] = {
        "composite": r"Composite Score",
        "fft": r"FFT \(1024\)",
        "sor": r"SOR \(100x100\)",
        "monte-carlo": r"Monte Carlo ",
        "sparse": r"Sparse matmult \(N=1000, nz=5000\)",
        "lu": r"LU \(100x100\)",
    }
    metrics: tuple[Metric, ...] = (
        Metric(
            "composite",
            "1/s",
            "higher",
            "Floating-point operations per second: the mean of the five kernels.",
            headline=True,
        ),
        *(
            Metric(kernel, "1/s", "higher", f"Floating-point operations per second of {what}.")
            for kernel, what in {
                "fft": "a fast Fourier transform of 1024 points",
                "sor": "Jacobi successive over-relaxation on 100×100 points",
                "monte-carlo": "a Monte Carlo integration of a quarter circle",
                "sparse": "a sparse matrix times a vector",
                "lu": "an LU factorisation of a 100×100 matrix",
            }.items()
        ),
        *TIMES,
    )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        asked = own(TimedParameters, parameters)
        argv = ("java", "-Xmx64m", "-cp", f"{INPUTS}/scimark.jar", "jnt.scimark2.commandline")
        output = "/tmp/tare-scimark.jar"
        # What it computes it does not tell, so only the program itself is verified.
        return request_of(
            self.name,
            asked,
            prepare=(Step(("cp", f"{INPUTS}/scimark.jar", output)),),
            step=Step((*argv, str(asked.duration))),
            output=output,
            clean=(),
        )

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of one cell: each kernel doubles its work until it is enough."""
        asked = own(TimedParameters, parameters)
        return asked.runs * (12 * asked.duration + 1)

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; SciMark tells millions of operations per second.

        Raises:
            KeyError: A kernel is missing.
            ValueError: The program was not verified, or a value is no finite number.
        """
        require_verified(result)
        said = words(result, "output")
        values: dict[str, float] = {}
        for kernel, pattern in self.kernels.items():
            found = re.search(rf"^{pattern}[ \t]*:[ \t]*({NUMBER})[ \t]*$", said, re.MULTILINE)
            if found is None:
                raise KeyError(f"output: {kernel}")
            values[kernel] = finite(found[1], f"output: {kernel}") * 1e6
        return values | times_of(result)
