"""``exits``: the cost of operations that leave a virtual machine for its hypervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from tare.workloads.contract import Metric, Need, Parameters, Workload
from tare.workloads.values import number

MOST = 10**9
OPERATION_S = 2e-6
SLEEP_S = 2.1e-3
PREPARATION_S = 0.05
OPERATIONS = {
    "cpuid": "CPUID instruction",
    "port_writes": "write to an I/O port without a device (0x80)",
    "mmio_writes": "write to a register of a device in memory",
    "msr_reads": "read of the register IA32_APIC_BASE",
    "ipis": "interrupt of another vCPU, by membarrier(2)",
    "sleeps": "sleep of 2 ms, at which an idle vCPU halts",
}
"""Maps the agent's name of each operation to its description."""


class ExitsParameters(Parameters):
    """How often each operation is executed."""

    cpuid: int = Field(
        default=100_000,
        ge=0,
        le=MOST,
        description="Number of CPUID instructions. Each leaves the virtual machine.",
    )
    port_writes: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="Number of writes to the I/O port 0x80, which no device uses. Needs root and "
        "`/dev/port`.",
    )
    mmio_writes: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="Number of writes to a read-only register of a SATA controller. Needs root and "
        "a controller that no driver uses, as machines of QEMU's type q35 have it.",
    )
    msr_reads: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="Number of reads of the register IA32_APIC_BASE. Needs root and the module "
        "`msr`.",
    )
    ipis: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="Number of interrupts that one vCPU sends to another. Needs 2 vCPUs.",
    )
    sleeps: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="Number of sleeps of 2 ms. An idle vCPU halts at least once in each.",
    )

    @model_validator(mode="after")
    def _check_any(self) -> ExitsParameters:
        if not any(counts_of(self).values()):
            raise ValueError("all numbers are 0: give one operation a number")
        return self


def counts_of(parameters: ExitsParameters) -> dict[str, int]:
    """Return how often each operation is executed."""
    return {name: int(count) for name, count in parameters.model_dump().items()}


class Exits(Workload[ExitsParameters]):
    """A known number of operations that leave a virtual machine."""

    name = "exits"
    resource = "cpu"
    summary = (
        "A known number of operations that hypervisors handle: CPUID, port and MMIO writes, reads "
        "of model-specific registers, interrupts between vCPUs, and halts."
    )
    parameters = ExitsParameters
    metrics = tuple(
        Metric(
            f"{name.replace('_', '-').removesuffix('s')}-time",
            "s",
            "lower",
            f"Mean time of one {what}.",
            headline=name == "cpuid",
            may_be_zero=False,
        )
        for name, what in OPERATIONS.items()
    )

    def metrics_for(self, parameters: ExitsParameters) -> tuple[Metric, ...]:
        """Return the metrics of the operations that are asked for."""
        asked = counts_of(parameters)
        return tuple(
            metric for metric, name in zip(self.metrics, OPERATIONS, strict=True) if asked[name]
        )

    def request(self, parameters: ExitsParameters) -> dict[str, Any]:
        """Return the agent's parameters: the numbers above 0."""
        return {name: count for name, count in counts_of(parameters).items() if count}

    def needs_for(self, parameters: ExitsParameters) -> frozenset[Need]:
        """Return the machine's needs: reads of registers need a module of its kernel."""
        return frozenset({"msr"}) if parameters.msr_reads else frozenset()

    def vcpus_for(self, parameters: ExitsParameters) -> int:
        """Return the minimum number of vCPUs: 2 for interrupts from one vCPU to another."""
        return 2 if parameters.ipis else 1

    def expected_s(self, parameters: ExitsParameters) -> float:
        """Estimate the seconds of one cell."""
        counts = counts_of(parameters)
        sleeps = counts.pop("sleeps")
        return PREPARATION_S + sum(counts.values()) * OPERATION_S + sleeps * SLEEP_S

    def observe(self, parameters: ExitsParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the mean time of each operation, in seconds.

        Raises:
            ValueError: The machine cannot execute an operation, or executed another number of it.
        """
        values = {}
        for metric, name in zip(self.metrics, OPERATIONS, strict=True):
            asked = counts_of(parameters)[name]
            if not asked:
                continue
            missing = result.get("missing")
            if isinstance(missing, Mapping) and name in missing:
                raise ValueError(f"{name} cannot be executed here: {missing[name]}")
            done = number(result, f"done.{name}")
            if done != asked:
                raise ValueError(f"{name}: {done:g} of {asked} were executed")
            values[metric.name] = number(result, f"seconds.{name}") / done
        return values
