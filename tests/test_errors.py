from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tare.errors import heard

WORDS = st.text(alphabet=' \n\t"abé')


@given(todo=WORDS, words=WORDS)
def test_a_tools_words_come_last_and_in_one_line(todo: str, words: str) -> None:
    hint = heard(todo, "xl", words)
    assert hint.startswith(todo)
    quoted = hint.removeprefix(todo).strip()
    assert bool(quoted) == bool(words.split())
    assert not quoted or quoted == f'(xl reported: "{" ".join(words.split())}")'
