"""Settings of the host that are held while machines need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.settings import FileSetting, changed, held_unaltered


async def test_a_setting_changed_by_others_is_reported_and_kept(tmp_path: Path) -> None:
    host, setting = LocalHost(), tmp_path / "sched_rt_runtime_us"
    setting.write_text("950000\n")
    with Ledger(tmp_path / "ledger") as ledger:
        async with changed(ledger, FileSetting(host, setting), "-1"):
            await held_unaltered(host, ledger)
            setting.write_text("700000\n")
            with pytest.raises(
                MachineFault, match=r"changed .*runtime_us from -1 to 700000 "
            ) as caught:
                await held_unaltered(host, ledger)
            assert caught.value.transient
        assert setting.read_text() == "700000\n"
        await held_unaltered(host, ledger)


async def test_a_setting_is_applied_again_for_the_next_user(tmp_path: Path) -> None:
    host, setting = LocalHost(), tmp_path / "sched_rt_runtime_us"
    setting.write_text("950000\n")
    with Ledger(tmp_path / "ledger") as ledger:
        async with changed(ledger, FileSetting(host, setting), "-1"):
            setting.write_text("950000\n")  # as another run that ends here gives it back
        async with changed(ledger, FileSetting(host, setting), "-1"):
            await held_unaltered(host, ledger)
        assert setting.read_text() == "950000\n"


class Slow(FileSetting):
    """A setting that takes effect after some readings, or never."""

    settling_s = 1.0
    hint = "ask for less"

    def __init__(self, host: LocalHost, path: Path, late: int) -> None:
        super().__init__(host, path)
        self.late, self.pending = late, ""

    async def read(self) -> str:
        self.late -= bool(self.pending)
        if self.pending and self.late <= 0:
            await super().set(self.pending)
            self.pending = ""
        return await super().read()

    async def set(self, value: str) -> str:
        self.pending = value
        return "it takes its time"


async def test_a_setting_is_verified_once_it_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "setting"
    path.write_text("1\n")
    with Ledger(tmp_path / "ledger") as ledger:
        async with changed(ledger, Slow(LocalHost(), path, late=2), "2"):
            assert path.read_text() == "2\n"
        assert path.read_text() == "1\n"


async def test_a_setting_that_is_not_taken_fails_with_both_values(tmp_path: Path) -> None:
    path = tmp_path / "setting"
    path.write_text("1\n")
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(
            MachineFault, match="was set to 2, but reads 1: it takes its time"
        ) as caught:
            async with changed(ledger, Slow(LocalHost(), path, late=1000), "2"):
                pass
        assert caught.value.hint == "ask for less"
        assert ledger.open_entries() == ()
