"""A vendor's library: imported when it is used, and what to run where it is not there."""

from __future__ import annotations

import importlib
from types import ModuleType

from tare.errors import InputError


def load(module: str, extra: str, product: str) -> ModuleType:
    """Return a vendor's module.

    Args:
        module: Its name.
        extra: The extra of Tare's that brings it.
        product: What it is for, in words.

    Raises:
        InputError: It is not installed; the hint is the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"the library that speaks with {product} is not there: {error}",
            f"pip install 'hypertare[{extra}]'",
        ) from None
