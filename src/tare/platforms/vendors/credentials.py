"""Credentials, from the environment or a private file, and the secrets to keep out of texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tare.errors import InputError

HIDDEN = "(secret)"
LEAST = 4
"""The shortest secret that is removed, in characters: removing shorter ones would damage words."""


class Secret:
    """A password, a token or a key.

    It prints as :data:`HIDDEN` and cannot be pickled; only :meth:`reveal` returns it.

    Args:
        value: The secret text.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret text, for the one call that needs it."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not to be stored")


def scrubbed(text: str, secrets: Iterable[Secret]) -> str:
    """Remove secrets from a text, such as an error message that repeats a request.

    Args:
        text: The text.
        secrets: The secrets to remove; those of fewer than :data:`LEAST` characters are kept.
    """
    values = {secret.reveal() for secret in secrets}
    # Replace the longest first: a secret may be a prefix of another.
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= LEAST:
            text = text.replace(value, HIDDEN)
    return text


USER, PASSWORD = "user", "password"
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Credentials:
    """A user's name, and the secret that authenticates it.

    Args:
        user: The account, or a token's id.
        password: Its password, or the token's secret.
    """

    user: str
    password: Secret


def credentials(
    prefix: str, file: str | None, environment: Mapping[str, str] | None = None
) -> Credentials:
    """Read the credentials that a study's arm refers to.

    Args:
        prefix: The prefix of the variables, such as ``TARE_VSPHERE``: ``…_USER`` and
            ``…_PASSWORD``.
        file: A file with the lines ``user=…`` and ``password=…``; None: the environment.
        environment: The environment's variables; by default this process's.

    Raises:
        InputError: They are missing, or others may read the file.
    """
    if file is not None:
        return _from_file(Path(file).expanduser())
    known = os.environ if environment is None else environment
    names = (f"{prefix}_USER", f"{prefix}_PASSWORD")
    if missing := [name for name in names if not known.get(name)]:
        raise InputError(
            f"there are no credentials: {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set",
            f"set {' and '.join(names)}, or name a file of mode 600 by `credentials`",
        )
    return Credentials(known[names[0]], Secret(known[names[1]]))


def _from_file(path: Path) -> Credentials:
    try:
        mode = path.stat().st_mode
        with path.open("rb") as opened:
            text = opened.read(MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(
            f"the credentials file {path} cannot be read: {why}",
            "write it with the lines `user=…` and `password=…`, for your eyes only (mode 600)",
        ) from None
    if mode & 0o077:
        raise InputError(f"others may read the credentials file {path}", f"run: chmod 600 {path}")
    # No line is quoted in a message: it may contain the password.
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or key.strip() not in (USER, PASSWORD):
            raise InputError(f"{path}, line {number}: expected `{USER}=…` or `{PASSWORD}=…`")
        found[key.strip()] = value.strip() if key.strip() == USER else value
    for key in (USER, PASSWORD):
        if not found.get(key):
            raise InputError(f"{path}: a line `{key}=…` is missing")
    return Credentials(found[USER], Secret(found[PASSWORD]))
