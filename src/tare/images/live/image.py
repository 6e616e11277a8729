"""Make a live image: ``tare image live``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.live.disc import Layout, make_disc, require_tools, source_date
from tare.images.live.parts import LiveParts, live_parts
from tare.images.toolbox.extended import extended_toolbox
from tare.images.toolbox.recipe import Kind
from tare.images.toolbox.toolbox import Toolbox, prepare_toolbox
from tare.workloads.additions import NOTHING, Additions


@dataclass(frozen=True)
class LiveImage:
    """A live image.

    Args:
        file: Where it is.
        digest: SHA-256 (hex) of its bytes.
        kernel_version: As ``uname -r`` will say.
        toolbox: The kind of its toolbox; None: it has none.
    """

    file: Path
    digest: str
    kernel_version: str
    toolbox: str | None


async def make_live_image(
    host: Host,
    out: Path,
    *,
    kernel: str,
    toolbox: Kind | None,
    additions: Additions = NOTHING,
    words: tuple[str, ...],
    agent: Path,
    cache: Path,
    say: Callable[[str], None],
) -> LiveImage:
    """Make a live image; what is at its place is replaced once the new one is whole.

    Args:
        host: This computer.
        out: Where it goes.
        kernel: ``generic``, or the name of a package with another signed kernel.
        toolbox: The toolbox that it holds; None: none.
        additions: What is added to that toolbox.
        words: Further words for the kernel's command line.
        agent: The static agent program.
        cache: Directory to keep its parts in.
        say: Receives each stage, in a sentence.

    Raises:
        InputError: A program or a package is missing, or the file cannot be written.
    """
    require_tools()
    epoch = source_date(os.environ)
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}", "make it, or name another one")
    for word in words:
        if not word.isprintable() or any(each in word for each in " \t\"'\\${};"):
            raise InputError(
                f"{word!r} is not a word for a kernel's command line",
                "name words without blanks and quotes, each by an `--append` of its own",
            )
    say("finding the packages of kernel and boot loaders")
    parts = await live_parts(host, kernel, agent=agent, cache=cache)
    for note in parts.notes:
        say(note)
    box = (
        await prepare_toolbox(host, toolbox, agent=agent, cache=cache, say=say) if toolbox else None
    )
    if box is not None and additions:
        box = await extended_toolbox(host, box, additions, agent=agent, cache=cache, say=say)
    say("putting the image together")
    layout = _layout(parts, box, words, epoch)
    try:
        with tempfile.TemporaryDirectory(prefix=".tare-live-", dir=out.parent) as folder:
            draft = Path(folder) / "disc"
            await make_disc(host, layout, Path(folder), draft)
            draft.replace(out)
    except OSError as error:
        raise InputError(
            f"{out} cannot be written: {error.strerror or error}", "free some space there"
        ) from error
    return LiveImage(out, store.file_digest(out), parts.kernel_version, toolbox)


def _layout(parts: LiveParts, box: Toolbox | None, words: tuple[str, ...], epoch: int) -> Layout:
    inputs = {
        "parts": parts.digest,
        "toolbox": box.digest if box is not None else None,
        "words": words,
        "epoch": epoch,
    }
    image = box.image if box is not None else None
    return Layout(parts.folder, store.key_of(inputs), image, words, epoch)
