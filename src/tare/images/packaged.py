"""Which kernels can be had here without being named as files: by bundles and by packages."""

from __future__ import annotations

from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.archives import kept_archive
from tare.images.bundle.index import read_index
from tare.images.packages import has_kernel
from tare.study.guest_kernels import GENERAL, REALTIME, GuestKernels
from tare.study.releases import Release


async def missing_kernels(host: Host, cache: Path, release: Release | None) -> GuestKernels:
    """Return which of the default kernels cannot be had, each with the reason.

    Nothing is downloaded for it: what the package lists name, or may name once they are fetched,
    counts as something that can be had.

    Args:
        host: The computer that builds images.
        cache: Where bundles are imported.
        release: The release that kernels are to be of; None: the computer's own.
    """
    imported = read_index(cache).kernels if release is None else {}
    missing: dict[str, str] = {}
    remedy = ""
    archive = await kept_archive(host, release, cache)
    for name in (REALTIME, GENERAL):
        if name in imported or archive is None:
            continue
        try:
            if not await has_kernel(host, name, archive):
                missing[name] = f"the distribution's packages have no kernel {name!r}"
        except InputError as error:
            missing[name] = error.message
            remedy = error.hint
    return GuestKernels(missing=missing, remedy=remedy)
