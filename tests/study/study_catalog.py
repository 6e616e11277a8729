"""A small catalog, so that the tests of studies need no real platform or workload."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tare.study.model.platform_options import PlatformOptions
from tare.study.model.study import Catalog
from tare.study.planning.plan import ArmFacts
from tare.units import Duration, Size


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bare(PlatformOptions):
    pass


class Qemu(PlatformOptions):
    accelerator: Literal["tcg", "kvm"] = "tcg"
    devices: Literal["paravirtual", "emulated"] = "paravirtual"
    cpu_model: str = Field("max", min_length=1)

    @property
    def wanted_devices(self) -> str:
        return self.devices


class Tick(Options):
    samples: int = Field(20000, ge=1, description="Number of samples.")
    busy: Duration = Field(68e-6, description="Length of the busy loop.")


class Switch(Options):
    threads: int = Field(2, ge=1)
    rounds: int = Field(1000, ge=1)


class Bandwidth(Options):
    array: Size = 1 << 20
    operations: tuple[str, ...] = ("copy",)


class Load(Options):
    block_size: Size = 0


class FixedKind:
    """A workload that always takes two seconds, one of them by the clock."""

    def __init__(self, parameters: type[BaseModel], roles: frozenset[str] = frozenset()) -> None:
        self.parameters = parameters
        self.roles = roles
        self.topology = "single"
        self.realtime = False
        self.needs: frozenset[str] = frozenset()

    def needs_for(self, parameters: Any) -> frozenset[str]:
        return self.needs

    def expected_s(self, parameters: Any) -> float:
        assert isinstance(parameters, self.parameters)
        return 2.0

    def clocked_s(self, parameters: Any) -> float:
        return 1.0

    def on_slaves(self, parameters: Any, slaves: int) -> Any:
        return parameters

    def vcpus_for(self, parameters: Any) -> int:
        return getattr(parameters, "threads", 1) // 100 or 1


CATALOG = Catalog(
    platforms={"bare": Bare, "qemu": Qemu},
    workloads={
        "tick": Tick,
        "switch": Switch,
        "memory-bandwidth": Bandwidth,
        "cpu-load": Load,
        "phased-load": Load,
    },
    neighbours_only=frozenset({"phased-load"}),
    roles=frozenset({"peer"}),
    known_as={"metal": "bare", "kvm": "qemu, accelerator: kvm"},
)
KINDS = {name: FixedKind(model) for name, model in CATALOG.workloads.items()}
ABLE = ArmFacts(usable=True, max_vcpus=4, pinning=True, boot_s=1.0)

GOOD = """\
study: small
baseline: bare
arms:
  bare: {platform: bare}
  bare-again: {twin-of: bare}
  qemu-pv: {platform: qemu, accelerator: tcg}
  qemu-em:
    platform: qemu
    devices: emulated
    cpu-model: host
    shape: {memory: 512MiB}
scenarios:
  alone: {}
  pinned: {subject: {cpus: pinned}}
  crowded:
    subject: {cpus: pinned}
    neighbours:
      - {load: cpu-load, count: 2, cpus: same, parameters: {block-size: 1MiB}}
workloads:
  tick: {samples: 200, busy: 100us}
  switch: {threads: [2, 10], rounds: [100, 200], scenarios: [alone]}
  again: {workload: tick, repeats: 2, deadline: 1 min}
  memory-bandwidth:
"""
