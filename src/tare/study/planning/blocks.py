"""The number of blocks of a study, and the rule that decides it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from tare.study.reading.hosting import StudyPart
from tare.units import Duration

FEWEST_BLOCKS_FOR_A_VERDICT = 6
"""With fewer blocks, a sign-flip test cannot reach p < 0.05 (2/2^6 = 0.031), whatever the values.
"""
LEAST_BLOCKS = 8
"""The default of ``least``: enough blocks to reach p < 0.01 (2/2^8 = 0.0078)."""
MOST_BLOCKS = 30
"""The default of ``most``, unless ``least`` is greater."""
SMOKE_RUN = "a smoke run of 1 block: it shows whether everything works, and gives no verdict"


class Blocks(StudyPart):
    """The number of blocks: between ``least`` and ``most``, until results are precise enough."""

    least: int = Field(
        LEAST_BLOCKS,
        ge=1,
        le=10_000,
        description="Blocks that always run. With fewer than 6, all results are preliminary; 1 is "
        "a smoke run, which shows whether everything works and gives no verdict.",
    )
    most: int = Field(
        MOST_BLOCKS,
        ge=1,
        le=10_000,
        description="Blocks after which the run ends even if it is not yet precise. Default: 30, "
        "or `least` if that is greater.",
    )
    precision: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Stop once the confidence interval of every headline ratio is within plus or "
        "minus this share (0.05 is 5 %).",
    )
    method: Literal["precision", "pilot", "stein", "sequential"] = Field(
        "precision",
        description="When to stop: `precision` checks after each block; `pilot` estimates from "
        "`least` blocks how many are needed, and again after those; `stein` estimates only once; "
        "`sequential` stops once every headline metric has a verdict or is as precise as asked; "
        "its verdicts hold although they are checked after each block.",
    )
    position: bool = Field(
        True,
        description="Adjust for boot order: use the arm's position among the boots of its block, "
        "minus the baseline's, as a covariate. The metrics of an arm share its slope, which is "
        "used only where it is shown. It helps if boots within a block get slower or faster. "
        "Default: on; off with `stein`, `turns` and trimmed means.",
    )
    average: Literal["mean", "trimmed"] = Field(
        "mean",
        description="What verdicts on typical metrics compare: `mean`, the mean of all blocks, or "
        "`trimmed`, the mean without a fifth of the blocks at either end. A few slow boots do not "
        "move a trimmed mean, so it finds differences between typical boots that they would hide; "
        "without slow boots, it needs a few more blocks. Not with `stein`.",
    )
    duet: bool = Field(
        False,
        description="Measure the baseline and one other arm at the same time, on equal cores that "
        "they swap in each block. Disturbances of the host then cancel out, but each arm is the "
        "other's neighbour.",
    )
    turns: bool = Field(
        False,
        description="Keep the baseline and one other arm running on the same CPUs, and let them "
        "work in turns: for a load balancer, load by load; otherwise cell by cell. Disturbances of "
        "the host that last longer than a turn then cancel out.",
    )
    tail_precision: float | None = Field(
        None,
        gt=0,
        description="The precision of headline metrics that are tails. Default: four times "
        "`precision`. Maxima have none, because no number of blocks makes them precise.",
    )
    budget: Duration | None = Field(
        None,
        description="Start no further block after this time, once `least` blocks are done; in "
        "seconds or with a unit.",
    )
    every: Duration | None = Field(
        None,
        gt=0,
        description="Start each block at least this long after the start of the previous one, to "
        "spread blocks over time where boots cannot be varied.",
    )

    @model_validator(mode="before")
    @classmethod
    def _let_others_follow(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        least = data.get("least", LEAST_BLOCKS)
        if not isinstance(least, int):
            return data
        # Fixed before the first block, never derived from results.
        without = (
            data.get("method") == "stein"
            or data.get("turns") is True
            or data.get("average") == "trimmed"
        )
        follow: dict[str, Any] = {"position": not without}
        if "least" in data:
            follow["most"] = max(MOST_BLOCKS, least)
        return {**follow, **data}

    @property
    def paired(self) -> bool:
        """Whether the machines of two arms run at the same time."""
        return self.duet or self.turns

    @model_validator(mode="after")
    def _check_methods(self) -> Blocks:
        if self.duet and self.turns:
            raise ValueError(
                "a duet measures two arms at the same time, turns one after the other: write "
                "either `duet` or `turns`"
            )
        if self.turns and self.position:
            raise ValueError(
                "arms that work in turns share one place in their block: remove `position`"
            )
        return self

    @model_validator(mode="after")
    def _trimmed_alone(self) -> Blocks:
        if self.average == "trimmed" and self.method == "stein":
            raise ValueError(
                "Stein's interval is that of the mean of all blocks: with `method: stein`, remove "
                "`average: trimmed`"
            )
        if self.average == "trimmed" and self.position:
            raise ValueError(
                "trimmed means are not adjusted for positions: remove `position` or `average`"
            )
        return self

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.least > self.most:
            raise ValueError(
                f"least ({self.least}) is more than most ({self.most}); raise most or lower least"
            )
        return self
