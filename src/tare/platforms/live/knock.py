"""Whether a machine dials at all: its call is heard and not answered, so that it calls again."""

from __future__ import annotations

import asyncio

from tare.errors import InputError
from tare.platforms.vendors.options import CallbackAddress

LISTEN_S = 15.0
"""Seconds in which a machine that is up has dialled: its agent tries every other second."""


async def knocks(place: CallbackAddress, patience_s: float = LISTEN_S) -> bool:
    """Return whether somebody dials a place before long.

    The connection is closed without an answer: an agent whose conversation has begun would start
    its machine anew at the end of it, and one that got no answer dials again.

    Args:
        place: Where machines dial.
        patience_s: How long it is listened.

    Raises:
        InputError: The address is none of this computer's, or the port is taken.
    """
    heard = asyncio.Event()

    def hear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        writer.close()

    try:
        server = await asyncio.start_server(hear, place.address, place.port)
    except OSError as error:
        raise InputError(
            f"the machine cannot dial back to {place}: {error.strerror or error}",
            "name an address of this computer and a free port by `listen`",
        ) from None
    try:
        async with asyncio.timeout(patience_s):
            await heard.wait()
    except TimeoutError:
        return False
    finally:
        server.close()
    return True
