#!/usr/bin/env python3
"""Fail if code probes a part's kind or capabilities instead of asking its contract.

Platforms, workloads, machines and hosts (parts) declare every hook and property on their base
classes. Other code therefore need not probe them by getattr or hasattr, by isinstance against one
of their classes, or by comparing a platform's or workload's name. ``make lint`` runs this check.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tare
from tare.hosts.contract import Host
from tare.platforms.contract import Machine, Platform
from tare.registry import installed
from tare.workloads.contract import Workload

WITHOUT_PARTS = ("analysis", "events", "references", "report")
"""Rooms that use only events, as import-linter ensures: they have no part to probe."""
ALLOWED = {
    ("cli/output.py", "getattr(self._stream, name)"): "a stream of Python's, passed on whole",
    ("cli/manual.py", "hasattr(command, 'commands')"): "a command of the command line's library",
    ("images/toolbox/expected.py", "scimark"): "the one program that may be missing",
    ("lab/", "xen"): "the hypervisor that a lab boots, not a platform",
    ("platforms/imported/libvirt_devices.py", "qemu"): "a driver of libvirt's, not a platform",
    ("platforms/imported/kubevirt.py", "hyperv"): "a part of KubeVirt's, not a platform",
    ("platforms/imported/libvirt_xml.py", "qemu"): "a type of libvirt's, not a platform",
    ("platforms/imported/ovf.py", "xen"): "a type of XenServer's, not a platform",
    ("platforms/ssh/inspection.py", "xen"): "the hypervisor that a machine shows, not a platform",
    ("run/hosts/", "xen"): "the hypervisor that a host is booted with, not a platform",
    ("run/lifecycle/session.py", "ssh"): "how a host is reached, not a platform",
    ("study/reading/hosting.py", "ssh"): "how a host is reached, not a platform",
    ("study/reading/hosting.py", "getattr(spec, name)"): "spec is a pydantic model with that field",
    ("study/reading/former_options.py", "xen"): "whose options had other names, for one version",
    ("testing/conformance.py", "numeric-sort"): "what an agent says it can do",
    (
        "testing/missing_capabilities.py",
        "program",
    ): "the one of the test's own workloads that needs arguments",
}
"""Maps a file or folder and a name or words in it to the reason why they do not probe a part."""
SOURCE = Path(tare.__file__).parent


def main() -> int:
    """Print each finding with its place; return 1 if there is any."""
    parts = installed()
    names = frozenset(parts.platforms) | frozenset(parts.workloads)
    homes = concrete_classes()
    sources = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in WITHOUT_PARTS
    }
    constants = constants_of(sources.values(), names)
    used: set[tuple[str, str]] = set()
    found = 0
    for path, source in sources.items():
        place = str(path.relative_to(SOURCE))
        for line, what, why in probes(source, place, names, homes, constants):
            allowed = {key for key in ALLOWED if place.startswith(key[0]) and what == key[1]}
            used |= allowed
            if allowed:
                continue
            found += 1
            print(f"{path}:{line}: `{what}`: {why}")
    for place, what in sorted(set(ALLOWED) - used):
        found += 1
        print(f"{SOURCE / place}: `{what}` is allowed, and not there any more")
    return 1 if found else 0


def concrete_classes() -> dict[str, str]:
    """Return the folder or file of every class that is a part, by the class's name."""
    for module in pkgutil.walk_packages([str(SOURCE)], "tare."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    homes: dict[str, str] = {}
    waiting: list[type[Any]] = [Platform, Workload, Machine, Host]
    while waiting:
        kinds: list[type[Any]] = waiting.pop().__subclasses__()
        for kind in kinds:
            homes[kind.__name__] = home_of(kind.__module__)
            waiting.append(kind)
    return homes


def constants_of(sources: Iterable[str], names: frozenset[str]) -> dict[str, str]:
    """Return the constants of modules whose value has a part's name, each with that name.

    Args:
        sources: The texts of all modules: a constant may be used in a comparison in any of them.
        names: The names of all platforms and workloads.
    """
    found: dict[str, str] = {}
    for node in chain.from_iterable(ast.parse(source).body for source in sources):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for aim, value in pairs:
                held = sorted(_strings(value) & names)
                if isinstance(aim, ast.Name) and aim.id.isupper() and held:
                    found[aim.id] = held[0]
    return found


def _strings(value: ast.expr) -> set[str]:
    """Return the strings in a constant: itself, its items or its keys."""
    match value:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return set().union(*map(_strings, parts))
        case ast.Call(func=ast.Name(id="frozenset" | "set"), args=[held]):
            return _strings(held)
        case ast.Dict(keys=keys):
            return set().union(*(_strings(key) for key in keys if key is not None))
    return set()


def home_of(module: str) -> str:
    """Return the place of a part: its own folder, or its file if it has no folder."""
    parts = module.split(".")[1:]
    return "/".join(parts[:2]) + ("/" if len(parts) > 2 else ".py")


def probes(
    source: str,
    place: str,
    names: frozenset[str],
    homes: dict[str, str],
    constants: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[int, str, str]]:
    """Yield each probe in a module: its line, its words or the name, and the advice.

    Args:
        source: The module's text.
        place: Its path below ``tare``.
        names: The names of all platforms and workloads.
        homes: The place of each part's class, by class name; code there may use the class.
        constants: The constants with such names, as :func:`constants_of` returns them.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _calls(node, node.func.id, place, homes)
        elif isinstance(node, ast.Compare):
            yield from _comparisons(node, place, names, constants)


def _calls(
    node: ast.Call, function: str, place: str, homes: dict[str, str]
) -> Iterator[tuple[int, str, str]]:
    words = ast.unparse(node)
    if function in ("getattr", "hasattr"):
        yield node.lineno, words, "declare the hook on the contract, with a default"
    if function in ("isinstance", "issubclass") and len(node.args) == 2:
        asked = {name.split(".")[-1] for name in map(ast.unparse, ast.walk(node.args[1]))
                 if name.replace(".", "").isidentifier()}  # fmt: skip
        for kind in sorted(asked & homes.keys()):
            if not place.startswith(homes[kind]):
                yield node.lineno, words, f"ask the contract, not whether it is a {kind}"


def _comparisons(
    node: ast.Compare, place: str, names: frozenset[str], constants: Mapping[str, str]
) -> Iterator[tuple[int, str, str]]:
    found: set[str] = set()
    for part in chain.from_iterable(map(ast.walk, (node.left, *node.comparators))):
        if isinstance(part, ast.Constant) and part.value in names:
            found.add(str(part.value))
        elif isinstance(part, ast.Name | ast.Attribute):
            found.add(constants.get(ast.unparse(part).rpartition(".")[2], ""))
    for name in sorted(found - {""}):
        if not place.startswith(f"platforms/{name}"):
            yield node.lineno, name, f"ask for what it states: {ast.unparse(node)}"


if __name__ == "__main__":
    sys.exit(main())
