"""The check for cycles finds each way in which a module can depend on another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import agent_cycles as lint

ROOT: lint.Module = ()
KNOWN = {ROOT, ("a",), ("a", "child"), ("b",), ("b", "child")}


@pytest.mark.parametrize(
    ("module", "text", "targets"),
    [
        (("b",), "use crate::a::Thing;", {("a",)}),
        (("b",), "use crate::a::child::{self, Thing};", {("a", "child")}),
        (("b",), "use crate::{a::child, b::child as own};", {("a", "child"), ("b", "child")}),
        (("b",), "use crate::a;\nfn f() { a::child::f() }", {("a",), ("a", "child")}),
        (("b",), "use crate::a as other;\nfn f(x: other::child::T) {}", {("a",), ("a", "child")}),
        (("a",), "mod child;\nfn f() -> child::T {}", {("a", "child")}),
        (("a", "child"), "use super::Thing;", {("a",)}),
        (("a", "child"), "fn f(x: &super::super::b::T) {}", {("b",)}),
        (("a",), "mod tests {\n use super::*;\n use super::child::T;\n}", {("a", "child")}),
        (("a", "child"), "mod tests {\n use super::super::T;\n}", {("a",)}),
    ],
)
def test_each_kind_of_path_is_followed(
    module: lint.Module, text: str, targets: set[lint.Module]
) -> None:
    assert set(lint.uses(module, text, KNOWN)) == targets


@pytest.mark.parametrize(
    "text",
    [
        "mod child;",
        "use std::fs; use rustix::thread::futex;",
        "// use crate::b;",
        '/* crate::b */ const A: &str = "crate::b::f";',
        'const A: &str = r#"crate::b "quoted" "#; const B: char = \'"\'; const C: &str = "b::f";',
        "mod tests {\n use super::*;\n}",
        "impl<'a> T<'a> { fn f(&'a self) -> Self::Out {} }",
    ],
)
def test_paths_inside_a_module_are_not_dependencies(text: str) -> None:
    assert set(lint.uses(("a",), text, KNOWN)) == set()


def test_a_cycle_is_printed_with_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "lib.rs").write_text("pub mod a;\npub mod b;\n")
    (tmp_path / "main.rs").write_text("use agent::a;\n")
    (tmp_path / "a/mod.rs").write_text("mod child;\nuse child::T;\n")
    (tmp_path / "a/child.rs").write_text("pub struct T;\n")
    (tmp_path / "b.rs").write_text("use crate::a::T;\n")
    assert lint.main(tmp_path) == 0
    (tmp_path / "a/child.rs").write_text("pub struct T(crate::b::U);\n")
    assert lint.main(tmp_path) == 1
    printed = capsys.readouterr().out
    assert all(str(tmp_path / name) in printed for name in ("a/mod.rs", "a/child.rs", "b.rs"))


def test_the_agent_has_no_cycle() -> None:
    assert len(lint.modules(lint.SOURCE)) > 80
    assert lint.main() == 0
