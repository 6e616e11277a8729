"""A Xen of the lab's own: a file of the user's, or Debian's built with the scheduler RTDS.

Debian builds Xen without RTDS, which its makers call unsupported. The source package is the one of
the distribution, its default configuration with that scheduler added, and the tools in dom0 stay
those of the packages: they speak with any Xen of their own version.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.packages import APT_LISTS
from tare.lab.image import LabImage
from tare.lab.options import WITH_RTDS, LabOptions
from tare.lab.packages import fetch, resolve
from tare.lab.sources import fetch_source

CONFIG = ("CONFIG_EXPERT=y", "CONFIG_UNSUPPORTED=y", "CONFIG_SCHED_RTDS=y")
"""xen/common/Kconfig: RTDS is offered to experts only."""
RECIPE = {"format": 1, "config": CONFIG}
TOOLS = ("flex", "bison")
"""What builds Xen's configuration, besides a compiler; taken from packages and not installed."""
_UNPACKED = ("flex", "bison", "m4", "libsigsegv2")
_STAMP = ("XEN_BUILD_DATE=-", "XEN_BUILD_TIME=-", "XEN_BUILD_HOST=tare", "XEN_WHOAMI=tare")
"""The same source gives the same bytes: no date, no computer's name in them."""
_SHORT_S = 300.0
_BUILD_S = 3600.0


@dataclass(frozen=True)
class OwnXen:
    """A Xen to boot.

    Args:
        file: Its uncompressed ELF.
        facts: ``sha256`` of that, and where it is from, for the run's record.
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
    """Return the image with the Xen that the lab is to boot, where that is not Debian's own.

    Args:
        host: This computer.
        options: What the lab is to be.
        image: What it boots otherwise.
        cache: Directory to keep things in.
        tell: Is called with a sentence before what takes minutes.

    Raises:
        InputError: The file cannot be read, or Xen cannot be built here; the hint says what to do.
    """
    if options.hypervisor != "xen":
        return image
    if options.xen and options.xen != WITH_RTDS:
        own = await _from_file(Path(options.xen), cache)
    elif options.xen == WITH_RTDS or options.scheduler == "rtds":
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
    """Find Debian's Xen with RTDS in the cache, or build it: some minutes, once.

    Raises:
        InputError: A compiler, make or the source is missing, or it does not build.
    """
    note = cache / "xens" / "rtds.json"
    key = _recall(note)
    facts = await asyncio.to_thread(store.load, cache / "xens" / key) if key else None
    if key is None or facts is None:
        await _require_compiler(host)
        async with store.exclusive(cache) as draft:
            # Another builder may have been first.
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
    """Return the day of apt's newest package list: a newer source may be there after it."""
    times = [path.stat().st_mtime for path in APT_LISTS.glob("*_*")]
    return int(max(times, default=0.0) // 86400)


async def _require_compiler(host: Host) -> None:
    for program in ("gcc", "make", "dpkg-source"):
        found = await host.run(["sh", "-c", f"command -v {program}"], timeout_s=30)
        if not found.ok:
            raise InputError(
                f"Xen's scheduler RTDS needs a Xen that is built here, and there is no {program}",
                "apt-get install -y build-essential dpkg-dev, or give a Xen: lab: {xen: FILE}",
            )


async def _build(host: Host, draft: Path, cache: Path) -> tuple[str, dict[str, Any]]:
    began = time.monotonic()
    work, kept = draft / "work", draft / "kept"
    for folder in (work / "source", work / "debs", kept):
        folder.mkdir(parents=True)
    environment = await _tools(host, work)
    dsc = await fetch_source(host, "xen", work / "source")
    await _step(host, ["dpkg-source", "-x", str(dsc), str(work / "tree")], _SHORT_S)
    tree = work / "tree" / "xen"
    compiler = (await host.run(["gcc", "-dumpfullversion"], timeout_s=30)).stdout.decode().strip()
    facts: dict[str, Any] = {
        "source": dsc.name.removesuffix(".dsc"),
        "source_sha256": store.file_digest(dsc),
        "config": list(CONFIG),
        "compiler": f"gcc {compiler}",
    }
    key = store.key_of({**RECIPE, **facts})
    make = ["make", "-C", str(tree), "XEN_TARGET_ARCH=x86_64", *_STAMP, "XEN_DOMAIN=local"]
    (tree / ".config").write_text("".join(f"{line}\n" for line in CONFIG))
    await _step(host, [*make, "olddefconfig"], _SHORT_S, environment)
    if CONFIG[-1] not in (tree / ".config").read_text():
        raise InputError(
            f"{facts['source']} cannot be built with RTDS: its configuration has no such option",
            "give a Xen that has it: lab: {xen: FILE}",
        )
    jobs = str(len(host.topology().online))
    await _step(host, [*make, "-j", jobs], _BUILD_S, environment)
    (tree / "xen").replace(kept / "xen")
    facts["sha256"] = store.file_digest(kept / "xen")
    facts["built_in_s"] = round(time.monotonic() - began)
    await asyncio.to_thread(store.publish, kept, cache / "xens" / key, facts)
    return key, facts


async def _tools(host: Host, work: Path) -> dict[str, str]:
    """Unpack what the build needs besides a compiler, and return where it finds that."""
    root = work / "tools"
    (work / "lists").mkdir()
    wanted = [part for part in await resolve(host, TOOLS, work / "lists") if part.name in _UNPACKED]
    for deb in await fetch(host, wanted, work / "debs"):
        await _step(host, ["dpkg-deb", "-x", str(deb), str(root)], _SHORT_S)
    programs = root / "usr" / "bin"
    return {
        "PATH": f"{programs}:{os.environ.get('PATH', '')}",
        "M4": str(programs / "m4"),
        "BISON_PKGDATADIR": str(root / "usr" / "share" / "bison"),
        "LD_LIBRARY_PATH": str(root / "usr" / "lib" / "x86_64-linux-gnu"),
    }


async def _step(
    host: Host, argv: list[str], timeout_s: float, env: Mapping[str, str] | None = None
) -> None:
    done = await host.run(argv, timeout_s=timeout_s, env=env)
    if not done.ok:
        words = [line for line in done.words().splitlines() if line.strip()]
        raise InputError(
            f"Xen cannot be built with RTDS: `{argv[0]}` says: {'; '.join(words[-3:])}",
            "free some space, or give a Xen that has it: lab: {xen: FILE}",
        )
