"""Sphinx's settings for the site; ``scripts/site/build`` runs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

_PROJECT = tomllib.loads(
    (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]

project = "Tare"
author = "The Tare developers"
copyright = "The Tare developers"
version = release = _PROJECT["version"]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
myst_heading_anchors = 4
myst_enable_extensions = ["smartquotes"]
html_theme = "furo"
html_title = "Tare"
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, sans-serif"},
    "dark_css_variables": {"font-stack": "system-ui, sans-serif"},
}
# A code block may name its file after the language, and some show parts of files.
suppress_warnings = ["misc.highlighting_failure"]


def setup(app: Any) -> None:
    """Register what Sphinx calls for each page."""
    app.connect("source-read", unlink_sources)


def unlink_sources(_app: Any, _page: str, source: list[str]) -> None:
    """Turn links to files outside docs/ into plain text: the site does not contain them."""
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./\.\./[^)]*\)", r"\1", source[0])
