"""``kernel-compile``: compile Linux from Debian's source with a fixed small configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from tare.units import Duration
from tare.workloads.applications.program import TIMES, times_of
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import per_second

SOURCE = "/usr/src/linux"
BUILD = "/tmp/tare-linux"
MIB = 1 << 20
# Otherwise the compiled kernel would contain the time, the user and the host of the build.
_ALWAYS_THE_SAME = {
    "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
    "KBUILD_BUILD_USER": "tare",
    "KBUILD_BUILD_HOST": "tare",
    "KBUILD_BUILD_VERSION": "1",
}
_WHOLE_S = 100.0
_PREPARE_S = 25.0


Target = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$", max_length=200)
]
"""A target of a makefile; options and variables are not allowed."""


class KernelCompileParameters(Parameters):
    """What is compiled, and by how many at once."""

    targets: tuple[Target, ...] = Field(
        default=("vmlinux",),
        min_length=1,
        description="Targets of the kernel's makefile. `vmlinux` is the whole smallest "
        "configuration (`tinyconfig`). Use a part, such as `[lib/]`, if a whole kernel takes too "
        "long, as on emulated processors; it is the same part in every arm.",
    )
    jobs: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Number of parallel compilers; 0: one for each CPU of the machine.",
    )
    runs: int = Field(
        default=1, ge=1, le=1000, description="Number of compilations, each from scratch."
    )
    timeout: Duration = Field(
        default=7200.0,
        gt=0,
        le=1e6,
        description="Time limit of one compilation. After it, the compilation is killed and the "
        "cell fails.",
    )
    expect: Duration = Field(
        default=_WHOLE_S,
        gt=0,
        le=1e6,
        description="Approximate duration of one compilation, only for the plan.",
    )


class KernelCompile(Workload[KernelCompileParameters]):
    """Compiling the Linux kernel: many short processes, much of their time in the kernel."""

    name = "kernel-compile"
    summary = (
        "Compiles Debian's kernel in its smallest configuration, from the toolbox's source, in "
        "memory."
    )
    parameters = KernelCompileParameters
    needs = frozenset({"toolbox", "toolbox-build"})
    memory = 768 * MIB
    carried_out_by = "program"
    metrics = (
        Metric("rate", "1/s", "higher", "Compilations per second.", headline=True),
        *TIMES,
    )

    def request(self, parameters: KernelCompileParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        jobs = str(parameters.jobs) if parameters.jobs else "$(nproc)"
        make = f'make -s -j{jobs} -C {SOURCE} O={BUILD} -- "$@"'
        checks = [
            {"path": f"{BUILD}/{target}"} for target in parameters.targets if target[-1:] != "/"
        ]
        return {
            "before": [_step(make, "tinyconfig"), _step(make, "prepare")],
            "steps": [_step(make, *parameters.targets)],
            "clean": [BUILD],
            "checks": checks,
            "repeats": parameters.runs,
            "timeout_s": parameters.timeout,
        }

    def expected_s(self, parameters: KernelCompileParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.runs * (parameters.expect + _PREPARE_S)

    def observe(
        self, parameters: KernelCompileParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics, in seconds and bytes.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number, or no time passed.
        """
        return {"rate": per_second(1.0, result, "wall_s"), **times_of(result)}


def _step(make: str, *targets: str) -> dict[str, Any]:
    return {"argv": ["sh", "-c", make, "make", *targets], "env": _ALWAYS_THE_SAME}
