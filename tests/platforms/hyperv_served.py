"""What tests of Hyper-V's driver share: a host, and the options by which it is reached."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from platforms.hyperv_host import IMAGE, USER
from platforms.hyperv_server import HypervServer
from platforms.vendor_served import reached
from tare.platforms.contract import Context
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.server import Server
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.vendors.session import opened


@pytest.fixture(name="server")
def served(tmp_path: Path) -> Iterator[HypervServer]:
    made = HypervServer(tmp_path)
    made.start()
    yield made
    made.stop()


def options_of(server: HypervServer, **more: Any) -> HypervOptions:
    way = {**reached(server, USER, server.password), "image": IMAGE}
    return HypervOptions.model_validate({**way, **more})


@asynccontextmanager
async def there(server: HypervServer, **more: Any) -> AsyncIterator[Server]:
    async with opened(HypervSession(options_of(server, **more).connection())) as session:
        yield Server(session)


def nothing_left(server: HypervServer, context: Context) -> bool:
    return not server.left and not server.shells and not context.ledger.open_entries()
