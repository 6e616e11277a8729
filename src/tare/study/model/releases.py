"""The releases of the distribution that a study can name, for labs and for guests' kernels."""

from __future__ import annotations

from typing import Literal, get_args

Release = Literal["bookworm", "trixie"]
"""Debian's code names, as its archive has them: https://www.debian.org/releases/."""

NUMBERS: dict[Release, int] = {"bookworm": 12, "trixie": 13}
RELEASES: tuple[Release, ...] = get_args(Release)


def release_words(release: Release) -> str:
    """Return a release's name for reports, such as ``Debian 13 (trixie)``."""
    return f"Debian {NUMBERS[release]} ({release})"
