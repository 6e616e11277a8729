"""The source that a benchmark's figures depend on, and its digest."""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AGENT = ("agent/src", "agent/Cargo.toml")
"""The sources of benchmarks that run the agent by itself."""
RUN = (
    *(f"src/tare/{part}" for part in ("agent", "cli", "events", "hosts", "images", "platforms")),
    *(f"src/tare/{part}" for part in ("run", "study", "workloads")),
    *AGENT,
)
"""The sources of benchmarks that time ``tare run``."""
ALL_OF_TARE = ("src/tare", *AGENT)
"""What a benchmark depends on that states no ``SOURCES``."""
_RUST_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def sources_of(benchmark: str) -> tuple[str, ...]:
    """Return the files and folders that a benchmark's figures depend on, relative to ``ROOT``.

    A benchmark states them as ``SOURCES``; its own module always belongs to them.
    """
    module = importlib.import_module(f"benchmarks.{benchmark}")
    stated = vars(module).get("SOURCES", ALL_OF_TARE)
    return (*stated, f"benchmarks/{benchmark}.py")


def source_digest(paths: Iterable[str], root: Path = ROOT) -> str:
    """Return a digest of source files that comments, docstrings and formatting leave unchanged.

    Args:
        paths: Files and folders, relative to ``root``. A folder means its Python and Rust files.
        root: The repository.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    whole = hashlib.sha256()
    for path in paths:
        for file in _files(root / path):
            whole.update(_meaning(file, file.stat().st_mtime_ns))
            whole.update(b"\0")
    return whole.hexdigest()[:16]


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; correct SOURCES of the benchmark")
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in {".py", ".rs"} and "target" not in file.parts:
            yield file


@cache
def _meaning(file: Path, changed_ns: int) -> bytes:
    """Return the digest of a file's code. Parsing is slow, and many benchmarks share files."""
    return hashlib.sha256(_code(file).encode()).digest()


def _code(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".rs":
        return "\n".join(line.strip() for line in _RUST_COMMENT.sub("", text).split("\n") if line)
    if file.suffix != ".py":
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Docstrings, also those of constants, are expressions without effect.
            node.body = [one for one in body if not _is_text(one)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
