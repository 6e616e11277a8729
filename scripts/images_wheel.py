"""Make the data-only wheel `hypertare-images`, which holds a bundle of kernels and toolboxes.

usage: scripts/images_wheel.py BUNDLE FOLDER [TAGS]

With it `pip install hypertare hypertare-images` is enough on hosts without apt or a network: Tare
finds the bundle by the entry point and imports it when it is first needed. The same bundle gives
the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "hypertare_images"
BUNDLE = "tare.bundle"
GROUP = "tare.bundles"
"""Equal to :data:`tare.images.bundle.installed.GROUP`."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PIECE = 1 << 20

_MODULE = f'''\
"""Kernels and toolboxes for Tare, in one bundle."""

from pathlib import Path


def bundle() -> Path:
    """Return the bundle's file."""
    return Path(__file__).with_name("{BUNDLE}")
'''

_METADATA = """\
Metadata-Version: 2.1
Name: hypertare-images
Version: {version}
Summary: Kernels and the toolbox that Tare's virtual machines use, for hosts without apt.
License: GPL-2.0 and others: LICENCES.txt in the bundle lists each package, its licence and source
Requires-Python: >=3.11
Requires-Dist: hypertare =={version}
Description-Content-Type: text/markdown

The bundle `{bundle}` in this package holds Linux kernels with their modules and the programs that
Tare measures with, all from Debian's packages, unchanged. `tar --zstd -xOf {bundle} LICENCES.txt`
lists the packages with their versions, sources and licences.
"""


def tare_version() -> str:
    """Return the version of Tare, whose recipes make the bundle."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def make_wheel(bundle: Path, folder: Path, version: str, tags: str) -> Path:
    """Write the wheel and return its file.

    Args:
        bundle: The file that `tare image export` wrote.
        folder: The folder for the wheel.
        version: The version of Tare and of the package.
        tags: The wheel's platform tags, joined by dots as in its name.
    """
    info = f"{PACKAGE}-{version}.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: tare\nRoot-Is-Purelib: false\n"
    wheel += "".join(f"Tag: py3-none-{tag}\n" for tag in tags.split("."))
    texts = {
        f"{PACKAGE}/__init__.py": _MODULE,
        f"{info}/METADATA": _METADATA.format(version=version, bundle=BUNDLE),
        f"{info}/WHEEL": wheel,
        f"{info}/entry_points.txt": f"[{GROUP}]\nimages = {PACKAGE}:bundle\n",
    }
    out = folder / f"{PACKAGE}-{version}-py3-none-{tags}.whl"
    draft = out.with_suffix(".part")
    record = []
    try:
        with zipfile.ZipFile(draft, "w") as package:
            record.append(_add_file(package, f"{PACKAGE}/{BUNDLE}", bundle))
            for name, text in texts.items():
                package.writestr(_member(name), text)
                record.append(_line(name, hashlib.sha256(text.encode()), len(text.encode())))
            record.append(f"{info}/RECORD,,\n")
            package.writestr(_member(f"{info}/RECORD"), "".join(record))
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    return out


def _add_file(package: zipfile.ZipFile, name: str, file: Path) -> str:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as source, package.open(_member(name), "w", force_zip64=True) as target:
        while piece := source.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            target.write(piece)
    return _line(name, digest, size)


def _member(name: str) -> zipfile.ZipInfo:
    # Stored: a bundle is compressed already.
    member = zipfile.ZipInfo(name, _EPOCH)
    member.external_attr = 0o644 << 16
    return member


def _line(name: str, digest: hashlib._Hash, size: int) -> str:
    text = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
    return f"{name},sha256={text},{size}\n"


def main(words: list[str]) -> int:
    """Make the wheel of a bundle; print its file."""
    if len(words) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    machine = os.uname().machine
    tags = words[2] if len(words) == 3 else f"manylinux2014_{machine}.musllinux_1_1_{machine}"
    print(make_wheel(Path(words[0]), Path(words[1]), tare_version(), tags))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
