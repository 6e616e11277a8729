"""A Xen that Debian did not build: a user's file, or Debian's source with the scheduler RTDS.

Debian builds Xen without RTDS, which the Xen project calls unsupported. Tare builds the
distribution's source package in its default configuration with that scheduler added. The tools in
dom0 stay those of the packages: they work with any Xen of their own version.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.archives import APT_LISTS, archive_of
from tare.lab.image import LabImage
from tare.lab.options import WITH_RTDS, LabOptions
from tare.lab.xen_source import require_compiler, unpack_xen

CONFIG = ("CONFIG_EXPERT=y", "CONFIG_UNSUPPORTED=y", "CONFIG_SCHED_RTDS=y")
"""xen/common/Kconfig: RTDS is offered to experts only."""
RECIPE = {"format": 1, "config": CONFIG}


@dataclass(frozen=True)
class OwnXen:
    """A Xen to boot.

    Args:
        file: Its uncompressed ELF.
        facts: Its ``sha256`` and its origin, for the run's record.
    """

    file: Path
    facts: Mapping[str, Any]


async def with_own_xen(
    host: Host,
    options: LabOptions,
    image: LabImage,
    cache: Path,
    tell: Callable[[str], None] | None,
) -> LabImage:
    """Return the image with the Xen that the options ask for, or unchanged.

    Args:
        host: This computer.
        options: The lab's options.
        image: The image with Debian's Xen.
        cache: The cache.
        tell: Receives a sentence before a step that takes minutes.

    Raises:
        InputError: The file cannot be read, or Xen cannot be built here; the hint says what to do.
    """
    if options.hypervisor != "xen":
        return image
    if options.xen and options.xen != WITH_RTDS:
        own = await _from_file(Path(options.xen), cache)
    elif options.xen == WITH_RTDS or options.scheduler == "rtds":
        if (await archive_of(host, options.release, cache)).release is not None:
            raise InputError(
                f"Xen with RTDS is built of this computer's own release, not of {options.release}",
                "leave `release` out for that scheduler",
            )
        own = await xen_with_rtds(host, cache, tell)
    else:
        return image
    return replace(image, own_xen=own.file, built=own.facts)


async def _from_file(file: Path, cache: Path) -> OwnXen:
    try:
        content = await asyncio.to_thread(file.read_bytes)
        if content[:2] == b"\x1f\x8b":
            content = await asyncio.to_thread(gzip.decompress, content)
    except (OSError, EOFError) as error:
        raise InputError(f"the Xen {file} cannot be read: {error}", "name another file") from error
    digest = store.file_digest(file)
    folder = cache / "xens" / digest
    if store.load(folder) is None:
        async with store.exclusive(cache) as draft:
            kept = draft / "kept"
            kept.mkdir()
            (kept / "xen").write_bytes(content)
            await asyncio.to_thread(store.publish, kept, folder, {})
    return OwnXen(folder / "xen", {"file": str(file), "sha256": digest})


async def xen_with_rtds(
    host: Host, cache: Path, tell: Callable[[str], None] | None = None
) -> OwnXen:
    """Find Debian's Xen with RTDS in the cache, or build it, which takes some minutes.

    Raises:
        InputError: A compiler, make or the source is missing, or it does not build.
    """
    note = cache / "xens" / "rtds.json"
    key = _recall(note)
    facts = await asyncio.to_thread(store.load, cache / "xens" / key) if key else None
    if key is None or facts is None:
        await require_compiler(host)
        async with store.exclusive(cache) as draft:
            # Another process may have built it first.
            key = _recall(note)
            facts = store.load(cache / "xens" / key) if key else None
            if key is None or facts is None:
                if tell is not None:
                    tell("building Xen with its scheduler RTDS, which takes some minutes once")
                key, facts = await _build(host, draft, cache)
                written = draft / "note"
                lists = _lists_state()
                written.write_text(json.dumps({"lists": lists, "recipe": RECIPE, "key": key}))
                written.replace(note)
    return OwnXen(cache / "xens" / key / "xen", facts)


def _recall(note: Path) -> str | None:
    try:
        known = json.loads(note.read_bytes())
        same = known["recipe"] == json.loads(json.dumps(RECIPE))
        return str(known["key"]) if same and known["lists"] == _lists_state() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lists_state() -> int:
    """Return the day of apt's newest package list: a later list may name a newer source."""
    times = [path.stat().st_mtime for path in APT_LISTS.glob("*_*")]
    return int(max(times, default=0.0) // 86400)


async def _build(host: Host, draft: Path, cache: Path) -> tuple[str, dict[str, Any]]:
    began = time.monotonic()
    kept = draft / "kept"
    kept.mkdir()
    source = await unpack_xen(host, draft / "work")
    compiler = (await host.run(["gcc", "-dumpfullversion"], timeout_s=30)).stdout.decode().strip()
    facts: dict[str, Any] = {
        "source": source.dsc.name.removesuffix(".dsc"),
        "source_sha256": store.file_digest(source.dsc),
        "config": list(CONFIG),
        "compiler": f"gcc {compiler}",
    }
    key = store.key_of({**RECIPE, **facts})
    if CONFIG[-1] not in await source.configure(CONFIG):
        raise InputError(
            f"{facts['source']} cannot be built with RTDS: its configuration has no such option",
            "give a Xen that has it: lab: {xen: FILE}",
        )
    (await source.build()).replace(kept / "xen")
    facts["sha256"] = store.file_digest(kept / "xen")
    facts["built_in_s"] = round(time.monotonic() - began)
    await asyncio.to_thread(store.publish, kept, cache / "xens" / key, facts)
    return key, facts
