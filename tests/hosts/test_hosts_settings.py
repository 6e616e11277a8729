"""Settings of the host that are held while machines need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.settings import changed_setting, held_unaltered


async def test_what_somebody_else_sets_meanwhile_is_noticed_and_left(tmp_path: Path) -> None:
    host, setting = LocalHost(), tmp_path / "sched_rt_runtime_us"
    setting.write_text("950000\n")
    with Ledger(tmp_path / "ledger") as ledger:
        async with changed_setting(host, ledger, setting, "-1"):
            await held_unaltered(host, ledger)
            setting.write_text("700000\n")
            with pytest.raises(
                MachineFault, match=r"set .*runtime_us to 700000.* to be -1"
            ) as told:
                await held_unaltered(host, ledger)
            assert told.value.transient
        assert setting.read_text() == "700000\n"
        await held_unaltered(host, ledger)


async def test_a_setting_is_set_again_for_whoever_comes_next(tmp_path: Path) -> None:
    host, setting = LocalHost(), tmp_path / "sched_rt_runtime_us"
    setting.write_text("950000\n")
    with Ledger(tmp_path / "ledger") as ledger:
        async with changed_setting(host, ledger, setting, "-1"):
            setting.write_text("950000\n")  # as another run that ends here gives it back
        async with changed_setting(host, ledger, setting, "-1"):
            await held_unaltered(host, ledger)
        assert setting.read_text() == "950000\n"
