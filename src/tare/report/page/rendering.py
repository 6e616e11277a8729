"""Fill templates: a self-contained page in which only Tare's own scripts may run."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from tare.outputs import put
from tare.report.figures.palette import css_variables
from tare.report.page.words import EMULATED, QUANTITY

TEMPLATES = Path(__file__).parents[1] / "templates"

SCRIPTS = ("page.js", "near.js", "explorer.js")
"""The scripts of a page with effects to choose from. Without effects it has only the first."""


def fill_template(
    template: str, page: object, scripts: Sequence[str], folders: Sequence[Path] = ()
) -> str:
    """Return a page as HTML, with all outside text escaped.

    Args:
        template: The template's name in the folder of templates.
        page: The data that the template shows.
        scripts: Names of the page's scripts. Its security policy allows these and no others.
        folders: Additional folders of templates.
    """
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *folders]),
        bytecode_cache=Compiled(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["prose"] = prose
    texts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in scripts]
    html = environment.get_template(template).render(
        page=page,
        light=Markup(css_variables("light")),
        dark=Markup(css_variables("dark")),
        css=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        scripts=[Markup(text) for text in texts],
        script_hashes=Markup(" ".join(map(_allowed, texts))),
        emulated_word=EMULATED,
    )
    return html.lstrip()


def _allowed(script: str) -> str:
    """Return the hash by which the page's security policy allows a script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


_NAME_OR_QUANTITY = re.compile(rf"{QUANTITY.pattern}|[\w.]+(?:-[\w.]+)+")

LONGEST_KEPT = 24
"""Longer names may break across lines."""


def unbroken(text: str) -> Markup:
    """Return ``text`` as :func:`prose`; short hyphenated names in it never break across lines."""
    return _with_code(text, lambda piece: _kept_whole(piece, _NAME_OR_QUANTITY))


def prose(text: str) -> Markup:
    """Return ``text`` as HTML in which text between backticks is code.

    A number and its unit never break across lines.
    """
    return _with_code(text, lambda piece: _kept_whole(piece, QUANTITY))


def _with_code(text: str, plain: Callable[[str], Markup]) -> Markup:
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return plain(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else plain(piece)
        for place, piece in enumerate(pieces)
    )


def _kept_whole(text: str, what: re.Pattern[str]) -> Markup:
    pieces, end = [], 0
    for match in what.finditer(text):
        if len(match[0]) <= LONGEST_KEPT:
            pieces += [escape(text[end : match.start()]), Markup('<span class="nb">')]
            pieces += [escape(match[0]), Markup("</span>")]
            end = match.end()
    return Markup("").join([*pieces, escape(text[end:])])


FOLDER = Path(__file__).parent / "__pycache__"


class Compiled(BytecodeCache):
    """Compiled templates in a folder; if nothing can be kept, templates are compiled again.

    Args:
        folder: The folder that contains them; it must exist.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the cached bytecode, unless it is damaged or of another Python or template."""
        # Without the cached file, the template itself is compiled.
        with contextlib.suppress(Exception):
            bucket.bytecode_from_string(self._path(bucket).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Cache the bytecode, if that is allowed and the disk has room."""
        if sys.dont_write_bytecode:
            return
        with contextlib.suppress(OSError):
            put(self._path(bucket), bucket.bytecode_to_string())

    def _path(self, bucket: Bucket) -> Path:
        return self._folder / f"template-{bucket.key}.jinja"
