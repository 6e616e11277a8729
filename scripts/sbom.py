"""Write the dependencies of the package and its agent, as CycloneDX: ``scripts/sbom.py [FILE]``.

It is written from the locks alone, so that it names what set-up, CI and `cargo --locked` take.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
FORMAT = "1.6"


def bill() -> dict[str, Any]:
    """Return the bill of materials: the same for the same locks, so without a date or a number."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crates = tomllib.loads((ROOT / "agent" / "Cargo.lock").read_text())["package"]
    ours = _component("pypi", project["name"], project["version"], "application")
    agent = next(_crate(each) for each in crates if "source" not in each)
    foreign = [_crate(each) for each in crates if "source" in each]
    libraries = list(_packages((ROOT / "locks" / "runtime.txt").read_text()))
    names: dict[str, list[dict[str, Any]]] = {}
    for each in crates:
        names.setdefault(each["name"], []).append(each)
    needs = [
        {"ref": _crate(each)["bom-ref"], "dependsOn": sorted(_needed(each, names))}
        for each in crates
    ]
    asked = [agent["bom-ref"], *(each["bom-ref"] for each in libraries)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "version": 1,
        "metadata": {"component": ours | {"licenses": [{"license": {"id": project["license"]}}]}},
        "components": [agent, *libraries, *foreign],
        "dependencies": [{"ref": ours["bom-ref"], "dependsOn": asked}, *needs],
    }


def _component(kind: str, name: str, version: str, sort: str = "library") -> dict[str, Any]:
    address = f"pkg:{kind}/{quote(name)}@{quote(version)}"
    return {"type": sort, "bom-ref": address, "name": name, "version": version, "purl": address}


def _crate(entry: dict[str, Any]) -> dict[str, Any]:
    if "checksum" not in entry:
        return _component("cargo", entry["name"], entry["version"], "application")
    hashes = [{"alg": "SHA-256", "content": entry["checksum"]}]
    return _component("cargo", entry["name"], entry["version"]) | {"hashes": hashes}


def _needed(entry: dict[str, Any], names: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    # Cargo adds the version only where there are several.
    for words in entry.get("dependencies", ()):
        name, _, version = words.partition(" ")
        for found in names[name]:
            if version.split(" ")[0] in ("", found["version"]):
                yield _crate(found)["bom-ref"]


def _packages(lock: str) -> Iterator[dict[str, Any]]:
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        head, *hashes = re.split(r"\s*\\\n\s*--hash=sha256:", entry)
        named = re.match(r"([^\s=;]+)==([^\s;]+)(?:\s*;\s*(.+))?", head)
        assert named is not None, head
        # A package has several files; which of them is installed is up to the computer.
        properties = [{"name": "tare:file:sha256", "value": each} for each in hashes]
        if named[3]:
            properties.append({"name": "tare:marker", "value": named[3]})
        yield _component("pypi", named[1], named[2]) | {"properties": properties}


def main(target: Path) -> None:
    """Write the bill."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(), indent=1) + "\n")
    print(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "hypertare.cdx.json")
