"""A change of an instance that Incus or LXD reports withholds the cell in which it happened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platforms.incus_daemon import POOL, asked, left_in, served, way_of
from platforms.test_incus_parts import options, vm
from platforms.vendor_served import started
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.incus.instance import list_disturbances, project_of
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.platforms.vendors.offer import SWAP_UNKNOWN
from tare.run.probes.hypervisor_side import HypervisorSide

LIMIT = str(256 << 20)
WANTED = {"config": {"limits.memory": LIMIT}}
FOUND: dict[str, Any] = {"location": "one", "expanded_config": {"limits.memory": LIMIT}}
STATE: dict[str, Any] = {"status": "Running", "memory": {"usage": 5, "swap_usage": 0}}


def disturbances(found: dict[str, Any], state: dict[str, Any], home: str = "one") -> list[str]:
    return list(list_disturbances({**FOUND, **found}, {**STATE, **state}, WANTED, home))


def test_an_instance_that_stays_as_it_was_asked_for_was_not_disturbed() -> None:
    assert disturbances({}, {}) == []
    assert disturbances({"location": "none"}, {}, "none") == []
    # Servers that are none of several need not say where it is.
    assert disturbances({"location": None}, {}, "") == []
    assert disturbances({}, {"memory": None}) == []


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        ({"location": "two"}, {}, "migrated to two"),
        ({"expanded_config": {"limits.memory": "128MiB"}}, {}, "limits.memory is 128MiB"),
        ({"expanded_config": {}}, {}, "limits.memory is not set"),
        ({}, {"status": "Frozen"}, "it was frozen"),
        ({}, {"memory": {"swap_usage": 4096}}, "swapped: 4096 bytes"),
    ],
)
def test_each_change_is_reported(found: dict[str, Any], state: dict[str, Any], words: str) -> None:
    (phrase,) = disturbances(found, state)
    assert words in phrase


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
)


@pytest.mark.fuzz
@given(JSON, JSON, JSON)
def test_any_answer_of_a_server_is_read_without_error(one: Any, two: Any, three: Any) -> None:
    found = {"location": one, "expanded_config": two}
    for phrase in disturbances(found, {"status": three, "memory": one}):
        assert isinstance(phrase, str)


def test_the_swap_of_vms_is_reported_as_unknown() -> None:
    platform = Incus()
    assert SWAP_UNKNOWN in platform.stated(vm()).capabilities.notes
    assert SWAP_UNKNOWN not in platform.stated(options()).capabilities.notes


@pytest.fixture
def folder() -> Iterator[Path]:
    with served() as made:
        yield made
        assert left_in(made) == []


@pytest.mark.slow
@pytest.mark.boots
async def test_disturbance_of_a_real_container_withholds_its_cell(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    settings = {"type": "container", "pool": POOL, "socket": str(folder / "unix.socket")}
    name = f"tare-test-{os.getpid()}-subject"
    spec = MachineSpec(name, Shape(1, 64 << 20), (), tmp_path / "w", False)
    own = IncusOptions.model_validate(settings)
    machine = await started(Incus(), context, own, spec)

    async def doubt(method: str, path: str, body: Mapping[str, Any]) -> str:
        """Return the doubts about a cell in which somebody asked the server for something."""
        whole = f"/1.0/instances/{name}{path}?project={project_of(name)}"
        side = HypervisorSide(machine)
        await side.open()
        await asyncio.to_thread(asked, way_of(folder), method, whole, body)
        await side.close()
        return side.doubt

    try:
        await machine.ready(60)
        calm = HypervisorSide(machine)
        await calm.open()
        await calm.close()
        assert calm.doubt == ""
        change = {"config": {"limits.memory": "96MiB"}}
        assert "limits.memory is 96MiB" in await doubt("PATCH", "", change)
        taken = await doubt("POST", "/snapshots", {"name": "of-a-test"})
        assert "snapshot of-a-test" in taken and "limits.memory" not in taken
        frozen = await doubt("PUT", "/state", {"action": "freeze", "timeout": 30})
        assert "it was frozen" in frozen and "snapshot" not in frozen
        await doubt("PUT", "/state", {"action": "unfreeze", "timeout": 30})
    finally:
        await machine.stop()
    assert context.ledger.open_entries() == ()
