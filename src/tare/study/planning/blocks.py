"""How many blocks a study runs, and by what it is decided."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from tare.study.reading.hosting import Part
from tare.units import Duration

FEWEST_BLOCKS_FOR_A_VERDICT = 6
"""Flipping the signs of fewer blocks cannot reach p < 0.05 (2/2^6 = 0.031), whatever the values."""
LEAST_BLOCKS = 8
"""As many as reach p < 0.01 (2/2^8 = 0.0078), where nothing else is asked."""
SMOKE_RUN = "a smoke run of 1 block: it shows whether everything works, and gives no verdict"
FEWEST_BLOCKS_FOR_POSITION = 10
"""With 8 blocks the degree of freedom that it costs takes power 0.82 to 0.63 (`tare help
statistics`); with 10 blocks it leaves 0.91."""


class Blocks(Part):
    """How many blocks to run: between ``least`` and ``most``, until precise enough."""

    least: int = Field(
        LEAST_BLOCKS,
        ge=1,
        le=10_000,
        description="Blocks that are always run; of fewer than 6 all is preliminary, and 1 is a "
        "smoke run, which shows that everything works and gives no verdict.",
    )
    most: int = Field(
        30,
        ge=1,
        le=10_000,
        description="Blocks after which the run ends even if it is not yet precise; "
        "30, or `least` when that is greater.",
    )
    precision: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Stop once the confidence interval of every headline ratio is within "
        "plus or minus this share (0.05 is 5 %).",
    )
    method: Literal["precision", "pilot", "stein", "anytime"] = Field(
        "precision",
        description="When it stops: `precision` looks after each block; `pilot` reckons from "
        "`least` blocks how many will do, and anew then; `stein` only once; `anytime` stops once "
        "every headline metric is decided, by verdicts that hold however often one looks.",
    )
    position: bool = Field(
        False,
        description="Whether by how much later in its block an arm was booted than the baseline is "
        "taken out as a covariate; true where `least` is 10 or more, when left out. With `stein` "
        "it is none. It costs a "
        "degree of freedom and gains where a block's boots grow slower or faster.",
    )
    duet: bool = Field(
        False,
        description="Whether the baseline and one other arm are measured at once, on equal cores "
        "that they exchange from block to block: what disturbs the host for a while then cancels "
        "out, but each arm is the other's neighbour.",
    )
    turns: bool = Field(
        False,
        description="Whether the baseline and one other arm are up at once, on the same CPUs, and "
        "work by turns: a load balancer's cells load by load, other cells one after the other. "
        "What disturbs the host for longer than a turn then cancels out.",
    )
    tail_precision: float | None = Field(
        None,
        gt=0,
        description="The same of headline metrics that are tails; four times `precision` when left "
        "out. Maxima have none: no number of blocks makes them precise.",
    )
    budget: Duration | None = Field(
        None,
        description="Start no further block after this time, once `least` blocks are done; "
        "in seconds or with a unit.",
    )
    every: Duration | None = Field(
        None,
        gt=0,
        description="Begin no block sooner than this after the one before it began, so that blocks "
        "are spread over time where boots cannot be varied.",
    )

    @model_validator(mode="before")
    @classmethod
    def _let_others_follow(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        least = data.get("least", LEAST_BLOCKS)
        if not isinstance(least, int):
            return data
        # Fixed before the first block, never by what was measured.
        without = data.get("method") in ("anytime", "stein") or data.get("turns") is True
        follow: dict[str, Any] = {"position": least >= FEWEST_BLOCKS_FOR_POSITION and not without}
        if "least" in data:
            follow["most"] = max(30, least)
        return {**follow, **data}

    @property
    def paired(self) -> bool:
        """Whether the machines of two arms are up at once."""
        return self.duet or self.turns

    @model_validator(mode="after")
    def _one_way(self) -> Blocks:
        if self.duet and self.turns:
            raise ValueError(
                "a duet measures two arms at the same time, and turns one after the other: write "
                "`duet`, or `turns`, but not both"
            )
        if self.turns and self.position:
            raise ValueError(
                "arms that work by turns have one place in their block: leave `position` out"
            )
        return self

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.least > self.most:
            raise ValueError(
                f"least ({self.least}) is more than most ({self.most}); raise most or lower least"
            )
        return self
