"""Every component of the package is listed, from the locks, in the form of CycloneDX."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("bill") / "new" / "bill.json"
    subprocess.run([sys.executable, ROOT / "scripts" / "sbom.py", target], check=True)
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def test_sbom_lists_every_locked_package_and_crate(written: dict[str, Any]) -> None:
    crates = tomllib.loads((ROOT / "agent" / "Cargo.lock").read_text())["package"]
    lock = (ROOT / "locks" / "runtime.txt").read_text()
    packages = re.findall(r"^([^\s=]+)==([^\s;\\]+)", lock, re.MULTILINE)
    wanted = {f"pkg:cargo/{each['name']}@{each['version']}" for each in crates}
    wanted |= {f"pkg:pypi/{name}@{version}" for name, version in packages}
    assert {each["purl"].replace("%2B", "+") for each in written["components"]} == wanted
    for each in written["components"]:
        foreign = each["type"] == "library"
        identified = each.get("hashes") or each.get("properties")
        assert bool(identified) == foreign, each


def test_dependencies_of_the_sbom_refer_to_listed_components(written: dict[str, Any]) -> None:
    listed = {each["bom-ref"] for each in written["components"]}
    assert (written["bomFormat"], written["specVersion"]) == ("CycloneDX", "1.6")
    reached = {ref for each in written["dependencies"] for ref in each["dependsOn"]}
    assert reached <= listed
    # Nothing is listed that nothing needs.
    assert listed == reached
