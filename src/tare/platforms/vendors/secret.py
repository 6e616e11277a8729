"""Secrets: they have no printable form, and are cut out of what others say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

HIDDEN = "(secret)"
LEAST = 4
"""Characters: what is shorter would be cut out of ordinary words."""


class Secret:
    """A password, a token or a key.

    It prints as :data:`HIDDEN`, and cannot be pickled: only :meth:`reveal` tells it.

    Args:
        value: What is secret.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return it, for the one call that needs it."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not to be stored")


def scrubbed(text: str, secrets: Iterable[Secret]) -> str:
    """Return a text without secrets, such as an error of a library that repeats its request.

    Args:
        text: What was said.
        secrets: What must not be in it; those shorter than :data:`LEAST` characters are left.
    """
    values = {secret.reveal() for secret in secrets}
    # The longest first: one may begin another.
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= LEAST:
            text = text.replace(value, HIDDEN)
    return text
