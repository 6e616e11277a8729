"""Import the bundles that come with installed packages, before the first run."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host

GROUP = "tare.bundles"
"""The group of entry points of packages that come with a bundle. Each names a function that returns
the bundle's path."""


async def import_installed(
    host: Host, cache: Path, say: Callable[[str], None] = lambda _: None
) -> None:
    """Import the bundles of installed packages (``pip install hypertare-images``), each once.

    Args:
        host: This computer.
        cache: The cache.
        say: Called with a sentence at each stage.

    Raises:
        InputError: A package's bundle cannot be imported; the message names the package.
    """
    points = entry_points(group=GROUP)
    if not points:
        return
    # Imported here, because most installations have no such package.
    from tare.images.bundle.archive import KERNELS, TOOLBOXES
    from tare.images.bundle.importing import import_bundle
    from tare.images.bundle.index import read_index

    index = read_index(cache)
    places = {key: [cache / folder / key for folder in (KERNELS, TOOLBOXES)] for key in index.keys}
    whole = all(any(map(Path.exists, folders)) for folders in places.values())
    known = index.installed if whole else {}
    for point in points:
        package = point.dist.name if point.dist else point.name
        try:
            file = Path(point.load()())
            about = file.stat()
        # Loading a third-party package may raise any exception.
        except Exception as error:
            raise InputError(
                f"the package {package} brings no bundle: {error}",
                f"pip install --force-reinstall {package}, or pip uninstall {package}",
            ) from error
        state = json.dumps([about.st_size, about.st_mtime_ns])
        if known.get(str(file)) == state:
            continue
        say(f"importing the bundle of the package {package}")
        await import_bundle(host, file, cache, say=say, installed=state)
