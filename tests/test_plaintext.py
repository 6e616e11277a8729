"""No text from outside can steer a terminal, hide, or turn the text around it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError, MachineFault
from tare.plaintext import plain, plain_json, plain_line

DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ODD = st.text(
    st.characters(exclude_categories=())
    | st.sampled_from("\x1b\x9b[]0;mHJ\x07\\\r\n\t" + DIRECTIONS)
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is: äöü 漢字 🙂\n\t", "as it is: äöü 漢字 🙂\n\t"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]52;c;aGVsbG8=\x1b\\text", "text"),
        ("\x9b2Jtext", "text"),
        ("\x1bctext\x1b", "text\N{SYMBOL FOR ESCAPE}"),
        ("a\x00b\x7fc\x85d", "a\N{SYMBOL FOR NULL}b\ufffdc\ufffdd"),
        ("two\r\nlines", "two\nlines"),
        ("over\rwritten", "over\N{SYMBOL FOR CARRIAGE RETURN}written"),
        ("safe\u202egnp.exe", "safe\ufffdgnp.exe"),
        ("half \ud800 one", "half \ufffd one"),
        ("\U000e0041hidden", "\ufffdhidden"),
    ],
)
def test_control_characters_are_removed(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(ODD)
def test_nothing_that_steers_is_left(text: str) -> None:
    shown = plain(text)
    assert plain(shown) == shown
    shown.encode()
    for sign in shown:
        assert sign in "\t\n" or unicodedata.category(sign) not in ("Cc", "Cs", "Zl", "Zp")
        assert sign not in DIRECTIONS


@given(ODD, st.integers(1, 50))
def test_a_line_is_one_line_of_bounded_length(text: str, longest: int) -> None:
    line = plain_line(text, longest)
    assert len(line) <= longest and "\n" not in line and "\t" not in line


@given(
    st.recursive(ODD | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(ODD, inner))
)
def test_json_is_cleaned_to_its_leaves(value: object) -> None:
    assert plain(repr(plain_json(value))).isprintable()


def test_errors_are_printed_as_plain_text() -> None:
    fault = MachineFault("qemu: \x1b[2Jgone\u202e", "try \x1b[5mthis", console_tail=("\x1b[1mx",))
    assert (str(fault), fault.console_tail) == ("qemu: gone\ufffd; try this", ("x",))
    assert str(InputError("a\x9b2Jb")) == "ab"


STEERS = "a\x1b[2J\x1b]0;t\x07b\x9b1mc\u202ed"
TELLING = f"""
from rich.table import Table
from rich.text import Text
from tare.cli.output import piped_or_terminal, print_line
odd = {STEERS!r}
print_line(odd, "bold")
console = piped_or_terminal()
console.print(Text(odd, "red"))
console.print(odd, markup=False)
table = Table(odd)
table.add_row(odd)
console.print(table)
"""


def test_on_a_terminal_only_tares_own_escapes_are_written() -> None:
    own, given = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", TELLING], stdout=given, stderr=given, env=environment
    ) as process:
        os.close(given)
        output = b""
        while True:
            try:
                part = os.read(own, 4096)
            except OSError:
                break
            if not part:
                break
            output += part
        assert process.wait(30) == 0, output
    os.close(own)
    text = output.decode()
    assert "\x1b[1m" in text, "it did not take the terminal for one"
    assert text.count("bc") >= 5
    for steering in ("\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\u202e"):
        assert steering not in text
