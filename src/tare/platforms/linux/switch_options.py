"""Options of platforms whose machines may use a switch other than a bridge."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tare.study.model.platform_options import PlatformOptions, Switching, SwitchKind


class SwitchedOptions(PlatformOptions):
    """Options for the switch that the host connects a machine's network interface to."""

    switch: SwitchKind = Field(
        default="bridge",
        description="The switch that connects machines and their peers. `bridge`: a bridge of the "
        "host's kernel. `openvswitch`: an Open vSwitch bridge with the kernel's datapath. "
        "`routed`: one interface per machine, with the host as router. The latter two run in a "
        "network namespace of Tare's own and need root.",
    )
    conntrack: bool = Field(
        default=False,
        description="With `openvswitch` and `routed`: track connections in the switch, as a host "
        "with a stateful firewall does.",
    )

    @property
    def wanted_switch(self) -> Switching:
        """The switch to which its machines are connected."""
        return Switching(self.switch, self.conntrack)

    @model_validator(mode="after")
    def _switched_as_one(self) -> Self:
        if self.conntrack and self.switch == "bridge":
            raise ValueError(
                "a bridge looks at no connections: write `switch: routed` or `openvswitch` "
                "with `conntrack`"
            )
        if self.switch != "bridge" and self.wanted_network == "user":
            raise ValueError(f"`switch: {self.switch}` needs a tap: write `network: tap`")
        return self
