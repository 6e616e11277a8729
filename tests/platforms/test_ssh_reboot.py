"""A machine that is rebooted is waited for, and reported if it does not come back."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tare.errors import InputError, MachineFault
from tare.hosts import Completed
from tare.hosts.ssh.host import SshHost
from tare.platforms.ssh import platform as ssh_platform
from tare.platforms.ssh.options import SshArmOptions
from tare.platforms.ssh.platform import Ssh, reboot


class Booting:
    """A machine that goes away on a reboot, and comes back after some tries."""

    name = "vm"

    def __init__(self, away: int, refusal: str = "") -> None:
        self._boot = 1
        self._away = away
        self._left = 0
        self._refusal = refusal
        self.asked: list[str] = []

    def boot_id(self) -> str:
        return str(self._boot)

    async def run(self, argv: Any, **_: Any) -> Completed:
        self.asked.append(argv[0])
        if argv[0] == "reboot":
            if self._refusal:
                return Completed(1, b"", self._refusal.encode())
            self._left = self._away
            raise MachineFault("the connection broke", transient=True)
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._boot += 1
            raise MachineFault("vm cannot be reached", transient=True)
        return Completed(0, b"", b"")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_platform, "TRY_EVERY_S", 0.001)


def as_host(machine: Booting) -> SshHost:
    return cast(SshHost, machine)


async def test_a_reboot_ends_with_another_boot() -> None:
    machine = Booting(3)
    await reboot(as_host(machine), 30)
    assert machine.boot_id() == "2"
    assert machine.asked[:2] == ["sync", "reboot"]


async def test_refused_reboot_is_reported_in_the_machines_words() -> None:
    with pytest.raises(InputError, match="Must be root") as caught:
        await reboot(as_host(Booting(1, "reboot: Must be root")), 30)
    assert "`reboot`" in caught.value.hint


@pytest.mark.parametrize(("away", "words"), [(10**9, "cannot be reached"), (0, "still runs")])
async def test_a_machine_that_does_not_come_back_is_given_up(away: int, words: str) -> None:
    with pytest.raises(MachineFault, match=words) as caught:
        await reboot(as_host(Booting(away)), 0.2)
    assert caught.value.transient
    assert "reboot-patience" in caught.value.hint


def test_the_time_of_a_reboot_is_in_the_plan() -> None:
    plain = SshArmOptions.model_validate({"ssh": "vm"})
    often = plain.model_copy(update={"reboot": True})
    assert Ssh().stated(often).boot_s > Ssh().stated(plain).boot_s
    assert "rebooted for each batch" in Ssh().describe(often)
    assert "left in the boot it had" in Ssh().describe(plain)
