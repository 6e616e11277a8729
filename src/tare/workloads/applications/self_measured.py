"""Applications that measure themselves and print their own rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.units import Duration
from tare.workloads.applications.program import TIMES, times_of
from tare.workloads.applications.programs import (
    INPUTS,
    MIB,
    ApplicationParameters,
    ProgramStep,
    request_of,
    require_verified,
)
from tare.workloads.contract import Metric, Workload
from tare.workloads.values import finite, words

NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:E-?[0-9]{1,2})?"
"""The pattern of a number as C and Java print it, with a limited number of digits."""

_AES = ("-K", "00112233445566778899aabbccddeeff", "-iv", "0f0e0d0c0b0a09080706050403020100")


class TimedParameters(ApplicationParameters):
    """How long it measures itself, and how often."""

    runs: int = Field(
        default=1, ge=1, le=10_000, description="Number of runs; the last one's figures count."
    )
    duration: Duration = Field(
        default=1.0,
        ge=0.001,
        le=3600,
        description="Minimum time for which each part measures itself.",
    )


class OpensslAes(Workload[TimedParameters]):
    """OpenSSL's own measurement of a cipher."""

    name = "openssl-aes"
    resource = "cpu"
    summary = "OpenSSL encrypts blocks of 16 KiB with AES-128-CBC and measures its own rate."
    parameters = TimedParameters
    needs = frozenset({"toolbox"})
    memory = 192 * MIB
    carried_out_by = "program"
    metrics = (
        Metric(
            "rate",
            "B/s",
            "higher",
            "Bytes encrypted per second, as OpenSSL reports.",
            headline=True,
        ),
        *TIMES,
    )

    def request(self, parameters: TimedParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        output = "/tmp/tare-text.aes"
        # Verify the cipher once, by encrypting a file.
        encrypt = ("openssl", "enc", "-aes-128-cbc", *_AES, "-in", f"{INPUTS}/text.txt")
        seconds = str(max(1, round(parameters.duration)))
        speed = ("openssl", "speed", "-elapsed", "-seconds", seconds, "-bytes", "16384")
        return request_of(
            self.name,
            parameters,
            prepare=(ProgramStep((*encrypt, "-out", output)),),
            step=ProgramStep((*speed, "-evp", "aes-128-cbc")),
            output=output,
            clean=(),
        )

    def expected_s(self, parameters: TimedParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.runs * (max(1.0, parameters.duration) + 0.2)

    def clocked_s(self, parameters: TimedParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.runs * max(1.0, parameters.duration)

    def observe(self, parameters: TimedParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; OpenSSL prints thousands of bytes per second.

        Raises:
            KeyError: The output lacks OpenSSL's table.
            ValueError: The cipher's output was not verified, or a value is not a finite number.
        """
        require_verified(result)
        found = re.search(rf"^AES-128-CBC[ \t]+({NUMBER})k", words(result, "output"), re.MULTILINE)
        if found is None:
            raise KeyError("output: AES-128-CBC")
        return {"rate": finite(found[1], "output: AES-128-CBC") * 1000, **times_of(result)}


class Scimark(Workload[TimedParameters]):
    """SciMark 2 on the Java virtual machine."""

    name = "scimark"
    resource = "cpu"
    summary = "SciMark 2.0 on the JVM: five numeric kernels, compiled while they run."
    parameters = TimedParameters
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
    metrics = (
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

    def request(self, parameters: TimedParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        argv = ("java", "-Xmx64m", "-cp", f"{INPUTS}/scimark.jar", "jnt.scimark2.commandline")
        output = "/tmp/tare-scimark.jar"
        # SciMark does not print its results, so only the program itself is verified.
        return request_of(
            self.name,
            parameters,
            prepare=(ProgramStep(("cp", f"{INPUTS}/scimark.jar", output)),),
            step=ProgramStep((*argv, str(parameters.duration))),
            output=output,
            clean=(),
        )

    def expected_s(self, parameters: TimedParameters) -> float:
        """Estimate the seconds of one cell: each kernel doubles its work until it takes long."""
        return parameters.runs * (12 * parameters.duration + 1)

    def observe(self, parameters: TimedParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; SciMark prints millions of operations per second.

        Raises:
            KeyError: A kernel is missing.
            ValueError: The program was not verified, or a value is not a finite number.
        """
        require_verified(result)
        printed = words(result, "output")
        values: dict[str, float] = {}
        for kernel, pattern in self.kernels.items():
            found = re.search(rf"^{pattern}[ \t]*:[ \t]*({NUMBER})[ \t]*$", printed, re.MULTILINE)
            if found is None:
                raise KeyError(f"output: {kernel}")
            values[kernel] = finite(found[1], f"output: {kernel}") * 1e6
        return values | times_of(result)
