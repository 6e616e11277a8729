"""A matrix of settings in a study, and the design that Tare planned for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from tare.study.model.forms import Slug
from tare.study.reading.hosting import StudyPart

DesignName = Literal["full", "one-at-a-time", "fractional"]
Levels = list[Any] | dict[str, dict[str, Any]]
MOST_SETTINGS, MOST_LEVELS, MOST_ARMS = 24, 12, 128


class Matrix(StudyPart):
    """Settings of one arm, and the combinations of their values that become arms."""

    arm: Slug = Field(
        description="The arm whose settings are changed. As written, it is the default run."
    )
    design: DesignName = Field(
        "one-at-a-time",
        description="The combinations to measure. `one-at-a-time`: each value alone. `full`: all "
        "combinations. `fractional`: a fraction of the combinations of the first two values of "
        "each setting, and every further value alone.",
    )
    resolution: Literal[4, 5] = Field(
        4,
        description="With `fractional`: `4` separates main effects from two-way interactions; `5` "
        "also separates all two-way interactions from each other.",
    )
    interactions: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list,
        max_length=64,
        description="With `fractional`: pairs of settings whose interaction must be separated from "
        "all other interactions, such as `[[vhost, nic-queues]]`.",
    )
    settings: dict[str, Levels] = Field(
        min_length=1,
        max_length=MOST_SETTINGS,
        description="By key of the arm (`vhost`, `shape.vcpus`), a list of values, the arm's own "
        "first. Or by a name of your choice, names of values with the keys that each sets: "
        "`memory: {default: {}, huge: {hugepages: true}}`.",
    )


class Setting(StudyPart):
    """One setting of a design: its levels in words, and the keys that each level sets."""

    name: str
    levels: tuple[str, ...]
    values: tuple[dict[str, Any], ...]


class DesignRun(StudyPart):
    """One combination: its arm, the level of each setting, and whether it is outside the core."""

    arm: str
    levels: tuple[int, ...]
    alone: bool


class Design(StudyPart):
    """A matrix as planned.

    The core is the full or fractional part. Runs outside it change one setting each.
    """

    arm: str
    design: DesignName
    settings: tuple[Setting, ...]
    runs: tuple[DesignRun, ...]
    resolution: int | None = None
    generators: tuple[tuple[int, tuple[int, ...]], ...] = ()
    aliases: tuple[tuple[tuple[int, ...], ...], ...] = ()
    named: tuple[tuple[int, int], ...] = ()

    def effect_words(self, effect: tuple[int, ...]) -> str:
        """Return a main effect or interaction in words: ``vhost x nic-queues``."""
        return " x ".join(self.settings[factor].name for factor in effect)

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of the design's plan: its runs, and the effects that it cannot separate.

        Args:
            name: The name of the matrix.
        """
        count = len(self.settings)
        core = [run for run in self.runs if not run.alone]
        alone = len(self.runs) - len(core)
        noun = "setting" if count == 1 else "settings"
        if self.design == "one-at-a-time":
            yield (
                f"matrix {name}: {count} {noun} of {self.arm}, one at a time: {alone} "
                f"{'arm' if alone == 1 else 'arms'} and the default. Interactions are not measured."
            )
        elif self.design == "full":
            yield (
                f"matrix {name}: all {len(core)} combinations of {count} {noun} of {self.arm}. "
                "Every main effect and every two-way interaction is separate."
            )
        else:
            yield from self._fraction_lines(name, len(core), alone)
        for run in self.runs:
            yield f"    {run.arm}: {self.run_words(run)}"

    def run_words(self, run: DesignRun) -> str:
        """Return the changes of a run as a phrase."""
        changed = [
            f"{setting.name} {setting.levels[level]}"
            for setting, level in zip(self.settings, run.levels, strict=True)
            if level
        ]
        return ", ".join(changed) or "the default"

    def _fraction_lines(self, name: str, core: int, alone: int) -> Iterator[str]:
        count = len(self.settings)
        grade = {None: "a full design", 4: "resolution IV", 5: "resolution V"}.get(
            self.resolution, f"resolution {self.resolution}"
        )
        further = f", and {alone} further values alone" if alone else ""
        yield (
            f"matrix {name}: {core} of {2**count} combinations of {count} settings of {self.arm} "
            f"({grade}){further}."
        )
        for factor, product in self.generators:
            words = " x ".join(self.settings[each].name for each in product)
            yield f"    generator: {self.settings[factor].name} = {words}"
        if self.named:
            pairs = ", ".join(map(self.effect_words, self.named))
            yield f"    separate by request: {pairs}"
        for same in self.aliases:
            yield f"    aliased: {' = '.join(map(self.effect_words, same))}"
        if self.aliases:
            yield (
                "    Main effects are separate from each other and from two-way interactions. Only "
                "the sum of aliased interactions is measured: to separate one, name it in "
                "`interactions`."
            )
        else:
            yield "    Every main effect and every two-way interaction is separate."
