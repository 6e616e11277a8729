"""What this host offers, platform by platform: usable or not, why, and what to do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from tare.errors import TareError
from tare.platforms import PLATFORMS
from tare.platforms.base import Capabilities, Context, Platform, Verdict

VARIANTS: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = {
    "bare": (("", {}),),
    "oci": tuple((name, {"runtime": name}) for name in ("crun", "runc", "runsc")),
    "qemu": tuple((name, {"accelerator": name}) for name in ("tcg", "kvm")),
    "xen": tuple((name, {"type": name}) for name in ("pv", "pvh", "hvm")),
}
"""For each platform the variants worth telling apart, with their options; others have one."""


class Finding(BaseModel):
    """What one variant of a platform came to on this host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    platform: str
    variant: str
    usable: bool
    reason: str
    hint: str
    emulated: bool
    versions: dict[str, str]
    capabilities: dict[str, Any]


async def examine(context: Context, platforms: Mapping[str, Platform] = PLATFORMS) -> list[Finding]:
    """Check every variant of every platform, all at once, for nothing is measured here.

    Args:
        context: Where they would work.
        platforms: The known platforms by name.

    Returns:
        One finding for each variant, platforms in the order given.
    """
    asked = [
        (platform, variant, options)
        for name, platform in platforms.items()
        for variant, options in VARIANTS.get(name, (("", {}),))
    ]
    return list(await asyncio.gather(*(_examine_one(context, *question) for question in asked)))


async def _examine_one(
    context: Context, platform: Platform, variant: str, options: Mapping[str, Any]
) -> Finding:
    try:
        verdict = await platform.check(context, platform.options.model_validate(dict(options)))
    except (TareError, OSError) as error:
        hint = error.hint if isinstance(error, TareError) else ""
        message = error.message if isinstance(error, TareError) else str(error)
        nothing = Capabilities(pinning=False, max_vcpus=0, min_memory=0, neighbours=False)
        verdict = Verdict(False, message, hint, False, {}, nothing)
    return Finding(
        platform=platform.name,
        variant=variant,
        usable=verdict.usable,
        reason=verdict.reason,
        hint=verdict.hint,
        emulated=verdict.emulated,
        versions=dict(verdict.versions),
        capabilities=plain(verdict.capabilities),
    )


def plain(capabilities: Capabilities) -> dict[str, Any]:
    """Return capabilities as plain JSON values."""
    values = dataclasses.asdict(capabilities)
    return {
        name: sorted(value) if isinstance(value, frozenset) else _listed(value)
        for name, value in values.items()
    }


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
