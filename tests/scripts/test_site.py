"""The documents build as a site without any warning, and the site needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.boots
def test_the_site_has_every_page_and_needs_no_network(tmp_path: Path) -> None:
    build = [ROOT / "scripts" / "site" / "build", tmp_path / "site"]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").glob("**/*.md")]
    for source in sources:
        html = (tmp_path / "site" / source).with_suffix(".html").read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img)[^>]*\ssrc="([^"]+)"', html)
        loaded += re.findall(r'<link rel="stylesheet"[^>]*\shref="([^"]+)"', html)
        assert loaded and not [each for each in loaded if "//" in each]
    index = (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    assert all(str(source.with_suffix("")) in index for source in sources)
