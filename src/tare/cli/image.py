"""The commands `tare image …`; thin."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

image_app = typer.Typer(
    help="The toolbox: the applications, as one read-only image for every machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class KindName(StrEnum):
    """The toolboxes there are."""

    base = "base"
    build = "build"
    hadoop = "hadoop"
    analytics = "analytics"


@image_app.command("list")
def list_images() -> None:
    """Show what is cached: kind (with + where a study added to it), digest, size, packages."""
    from tare.images.toolbox.toolbox import toolboxes
    from tare.run.session import cache_dir
    from tare.study.quantities import format_size

    found = toolboxes(cache_dir())
    for box in found:
        size = format_size(box.image.stat().st_size) if box.image.is_file() else "image missing"
        kind = f"{box.kind}+" if box.adds else box.kind
        print(f"{kind:9} {box.digest[:12]}  {size}  {len(box.packages)} packages")
        for note in box.notes:
            print(f"          {note}")
    if not found:
        print("no toolbox is cached; one is built by the first study that needs it")


@image_app.command()
def build(
    kind: Annotated[
        KindName,
        typer.Argument(
            help="`base`, `build` with what compiles a kernel, `hadoop`, or `analytics` with Spark "
            "too."
        ),
    ] = KindName.base,
) -> None:
    """Build a toolbox now, unless the cache has it."""
    import asyncio

    from tare.hosts.local import LocalHost
    from tare.images.toolbox.toolbox import prepare_toolbox
    from tare.run.session import agent_path, cache_dir

    began = time.monotonic()

    def say(sentence: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {sentence}", flush=True)

    agent = agent_path()
    box = asyncio.run(
        prepare_toolbox(LocalHost(agent), kind.value, agent=agent, cache=cache_dir(), say=say)
    )
    for note in box.notes:
        print(note)
    found = "was cached" if box.cached else f"was built in {box.took_s:.0f} s"
    print(f"toolbox {box.kind} {box.digest[:12]} {found}: {box.image}")


@image_app.command()
def verify() -> None:
    """Read every byte of every cached toolbox; remove those that are damaged."""
    from tare.images.toolbox.toolbox import discard_toolbox, toolboxes, verify_toolbox
    from tare.run.session import cache_dir

    damaged = False
    found = toolboxes(cache_dir())
    for box in found:
        problems = verify_toolbox(box)
        print(f"toolbox {box.kind} {box.digest[:12]}: {'damaged' if problems else 'intact'}")
        for problem in problems:
            print(f"    {problem}")
        if problems:
            damaged = True
            discard_toolbox(box)
            print(
                "    removed; the next study that needs it, or `tare image build`, builds it anew"
            )
    if not found:
        print("no toolbox is cached")
    if damaged:
        raise typer.Exit(1)
