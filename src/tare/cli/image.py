"""The commands `tare image …`."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tare.plaintext import plain

image_app = typer.Typer(
    help="What machines boot with: the toolbox with the applications, and the live image that "
    "boots anywhere.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class KindName(StrEnum):
    """The toolboxes."""

    base = "base"
    build = "build"
    hadoop = "hadoop"
    analytics = "analytics"


class LiveToolbox(StrEnum):
    """The toolboxes that a live image may hold."""

    none = "none"
    base = "base"
    build = "build"
    hadoop = "hadoop"
    analytics = "analytics"
    proxy = "proxy"


@image_app.command("list")
def list_images() -> None:
    """List the cache: kind (with + if a study added packages), digest, size, packages.

    Imported kernels and toolboxes are marked.
    """
    from tare.images.bundle.index import read_index
    from tare.images.kernels import cached_kernel
    from tare.images.toolbox.toolbox import toolboxes
    from tare.run.lifecycle.session import cache_dir
    from tare.units import format_size

    index = read_index(cache_dir())
    for name, key in index.kernels.items():
        held = cached_kernel(cache_dir() / "kernels" / key)
        print(f"kernel {plain(name)}  {f'Linux {held.version}' if held else 'damaged'}  imported")
    found = toolboxes(cache_dir())
    for box in found:
        imported = "  imported" if box.key in index.keys else ""
        size = format_size(box.image.stat().st_size) if box.image.is_file() else "image missing"
        kind = f"{box.kind}+" if box.adds else box.kind
        print(f"{kind:9} {box.digest[:12]}  {size}  {len(box.packages)} packages{imported}")
        for note in box.notes:
            print(f"          {plain(note)}")
    if not found:
        print("no toolbox is cached; the first study that needs one builds it")


@image_app.command()
def build(
    kind: Annotated[
        KindName,
        typer.Argument(
            help="`base`, `build` (with the tools to compile a kernel), `hadoop`, or `analytics` "
            "(with Spark too)."
        ),
    ] = KindName.base,
) -> None:
    """Build a toolbox now, unless it is cached."""
    import asyncio

    from tare.hosts.local import LocalHost
    from tare.images.bundle.installed import import_installed
    from tare.images.toolbox.toolbox import Toolbox, prepare_toolbox
    from tare.run.lifecycle.session import agent_path, cache_dir
    from tare.run.preflight.cache_wait import announced

    say = _stages()
    agent = agent_path()

    async def prepared() -> Toolbox:
        host = LocalHost(agent)
        await import_installed(host, cache_dir(), say)
        return await prepare_toolbox(host, kind.value, agent=agent, cache=cache_dir(), say=say)

    with announced():
        box = asyncio.run(prepared())
    for note in box.notes:
        print(plain(note))
    found = "was cached" if box.cached else f"was built in {box.took_s:.0f} s"
    print(f"toolbox {box.kind} {box.digest[:12]} {found}: {box.image}")


@image_app.command()
def verify() -> None:
    """Check every cached toolbox completely, and remove damaged ones."""
    from tare.images.toolbox.toolbox import discard_toolbox, toolboxes, verify_toolbox
    from tare.run.lifecycle.session import cache_dir

    damaged = False
    found = toolboxes(cache_dir())
    for box in found:
        problems = verify_toolbox(box)
        print(f"toolbox {box.kind} {box.digest[:12]}: {'damaged' if problems else 'intact'}")
        for problem in problems:
            print(f"    {plain(problem)}")
        if problems:
            damaged = True
            discard_toolbox(box)
            print(
                "    removed; the next study that needs it, or `tare image build`, builds it again"
            )
    if not found:
        print("no toolbox is cached")
    if damaged:
        raise typer.Exit(1)


@image_app.command()
def medium(
    callback: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="Where the machine reaches this computer.")
    ],
    out: Annotated[Path, typer.Option(help="The image to write; the certificate goes next to it.")],
) -> None:
    """Make the medium that identifies a bare machine which boots the live image (`bare-live`).

    Copy the image to a USB stick or CD, or attach it as a virtual one; it holds the machine's key.
    The file next to it, FILE.pem, stays here.
    """
    from tare.errors import InputError
    from tare.platforms.live.medium import certificate_file, make_medium
    from tare.platforms.vendors.options import parse_callback_address

    try:
        place = parse_callback_address(callback)
        if not place.port:
            raise ValueError("must include the port, because it is written to the medium")
    except ValueError as error:
        raise InputError(f"--callback {callback}: {error}") from error
    make_medium(out, place)
    print(f"{out} is for the machine, {certificate_file(out)} stays here; both are secret")


@image_app.command()
def live(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    toolbox: Annotated[
        LiveToolbox, typer.Option(help="The toolbox to include, in a separate partition.")
    ] = LiveToolbox.base,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Attach it as a disk, not as a CD: the same bytes, under any name. Without this "
            "option the name must end in .iso.",
        ),
    ] = False,
    append: Annotated[
        list[str] | None,
        typer.Option(help="A word for the kernel's command line. May be repeated."),
    ] = None,
    kernel: Annotated[
        str, typer.Option(help="`generic`, or the name of a package with another signed kernel.")
    ] = "generic",
) -> None:
    """Make one image that boots anywhere, by BIOS and UEFI, and connects back to Tare.

    It does nothing until it finds a CD or disk labelled TARE-CFG, which the drivers of hypervisors
    attach to their machines.
    """
    import asyncio

    from tare.errors import InputError
    from tare.hosts.local import LocalHost
    from tare.images.live.image import make_live_image
    from tare.images.toolbox.recipe import KINDS
    from tare.run.lifecycle.session import agent_path, cache_dir
    from tare.run.preflight.cache_wait import announced
    from tare.workloads.additions import NOTHING, PROXIED

    if not raw and out.suffix != ".iso":
        raise InputError(
            f"{out} is not a name for a CD image",
            "end the name in .iso, or add --raw to attach it as a disk",
        )
    held_kind = "base" if toolbox is LiveToolbox.proxy else toolbox.value
    agent = agent_path()
    making = make_live_image(
        LocalHost(agent),
        out.absolute(),
        kernel=kernel,
        toolbox=next((kind for kind in KINDS if kind == held_kind), None),
        additions=PROXIED if toolbox is LiveToolbox.proxy else NOTHING,
        words=tuple(append or ()),
        agent=agent,
        cache=cache_dir(),
        say=_stages(),
    )
    with announced():
        made = asyncio.run(making)
    held = f"toolbox {toolbox.value}" if made.toolbox else "no toolbox"
    print(f"{out}: Linux {made.kernel_version}, {held}")
    print(f"SHA-256 {made.digest}")


@image_app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="The bundle to write, such as tare.bundle.")],
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            help="A kernel, as a study names it. May be repeated. Default: rt and generic."
        ),
    ] = None,
    toolbox: Annotated[
        list[LiveToolbox] | None,
        typer.Option(help="A toolbox. May be repeated. Default: base."),
    ] = None,
) -> None:
    """Write kernels and toolboxes into one file, for hosts without apt or without a network.

    It needs apt and a network. `tare image import FILE` uses the file on any other computer.
    """
    import asyncio

    from tare.errors import InputError
    from tare.hosts.local import LocalHost
    from tare.images.bundle.exporting import KERNEL_NAMES, export_bundle
    from tare.images.cache import file_digest
    from tare.images.toolbox.recipe import KINDS
    from tare.run.lifecycle.session import agent_path, cache_dir
    from tare.run.lifecycle.versions import tare_version
    from tare.run.preflight.cache_wait import announced
    from tare.units import format_size

    if LiveToolbox.proxy in (toolbox or ()):
        raise InputError(
            "a bundle holds no toolbox `proxy`", "export `base`; a study adds HAProxy to it by apt"
        )
    agent = agent_path()
    wanted = {kind.value for kind in toolbox or [LiveToolbox.base]}
    exporting = export_bundle(
        LocalHost(agent),
        file.absolute(),
        made_by=f"Tare {tare_version()}",
        kernels=tuple(kernel or KERNEL_NAMES),
        toolboxes=[kind for kind in KINDS if kind in wanted],
        agent=agent,
        cache=cache_dir(),
        say=_stages(),
    )
    with announced():
        asyncio.run(exporting)
    print(f"{file}: {format_size(file.stat().st_size)}, SHA-256 {file_digest(file)}")


@image_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A bundle that `tare image export` wrote.")],
) -> None:
    """Verify a bundle and use its kernels and toolboxes here instead of the distribution's."""
    import asyncio

    from tare.hosts.local import LocalHost
    from tare.images.bundle.importing import import_bundle
    from tare.run.lifecycle.session import agent_path, cache_dir
    from tare.run.preflight.cache_wait import announced

    host = LocalHost(agent_path())
    with announced():
        made = asyncio.run(import_bundle(host, file, cache_dir(), say=_stages()))
    for name, kernel in made.kernels.items():
        print(f"kernel {plain(name)}: Linux {plain(kernel.version)}")
    for kind, box in made.toolboxes.items():
        print(f"toolbox {kind}: {box.digest[:12]}, {len(box.packages)} packages")


def _stages() -> Callable[[str], None]:
    """Return a function that prints a command's stages, with the seconds since its start."""
    began = time.monotonic()

    def say(sentence: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {plain(sentence)}", flush=True)

    return say
