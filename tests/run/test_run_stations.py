"""Stations: which boots arms share, and a host that is rebooted into another hypervisor.

A reboot needs a computer of its own, so here the host is a double that answers as one would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Completed
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.options import options_of, way_of
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Platform, Statement
from tare.platforms.host_hypervisor import Details, HostHypervisor, hypervisors_of
from tare.platforms.xen.hypervisor import XEN
from tare.registry import installed
from tare.run.hosts import ssh as sshstation
from tare.run.hosts.booted import RunningHypervisor, mark_of, running
from tare.run.hosts.ssh import SshRunHost, ssh_options
from tare.study.planning.host_cpus import HostCpus
from tare.study.reading.hosting import Boot, HostSpec

MENU = {"kvm": {"entry": "plain"}, "xen": {"entry": "xen"}, "xen_credit": {"entry": "credit"}}
SCHEDULERS = {"xen": "credit2", "credit": "credit"}
ACRN_SIGN = "/sys/devices/virtual/misc/acrn_hsm/name"
ACRN = HostHypervisor("acrn", "ACRN", {ACRN_SIGN: "ACRN"}, "in ACRN's service VM")


@dataclass
class Rebooting:
    """Answers as a host with a boot menu does; ``menu`` has the real boot of each entry."""

    boots: str = "plain"
    menu: dict[str, str] = field(default_factory=lambda: {e: e for e in ("plain", "xen", "credit")})
    name: str = "root@x"
    number: int = 1
    next: str = ""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    down: int = 0

    async def connect(self) -> None:
        if self.down:
            self.down -= 1
            raise MachineFault("root@x cannot be reached", transient=True)

    async def read(self, path: str) -> bytes:
        if self.boots == "plain":
            raise FileNotFoundError(path)
        if self.boots == "acrn":
            if path != ACRN_SIGN:
                raise FileNotFoundError(path)
            return b"ACRN\n"
        if path == ACRN_SIGN:
            raise FileNotFoundError(path)
        return b"xen\n" if path == "/sys/hypervisor/type" else b"control_d\n"

    async def run(self, argv: list[str], **_: Any) -> Completed:
        await self.connect()
        self.asked.append(tuple(argv))
        if argv[0] == "grub-reboot":
            if argv[1] not in self.menu:
                return Completed(1, b"", b"no such entry")
            self.next = self.menu[argv[1]]
        if argv[0] == "reboot":
            self.number, self.boots, self.down = self.number + 1, self.next, 2
        if argv[0] == "xl":
            words = f"nr_cpus : 4\nxen_scheduler          : {SCHEDULERS[self.boots]}\n"
            return Completed(0, words.encode(), b"")
        return Completed(0, b"", b"")

    def boot_id(self) -> str:
        return str(self.number)

    def topology(self) -> HostCpus:
        return HostCpus(online=(0,))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshstation, "TRY_EVERY_S", 0.0)


async def run_host(
    host: Rebooting,
    menu: dict[str, Any] | None = None,
    platforms: Mapping[str, Platform[Any]] | None = None,
) -> SshRunHost:
    platforms = installed().platforms if platforms is None else platforms
    real = cast(SshHost, host)
    boot = None if menu is None else Boot.model_validate({**menu, "patience": 5.0})
    context = cast(Context, object())
    now = await running(real, hypervisors_of(platforms.values()))
    return SshRunHost(real, context, platforms, {}, boot, now, lambda _: None)


def boot_of(where: SshRunHost, platform: str, **options: Any) -> str:
    asked = installed().platforms[platform]
    return where.boot_of(asked, asked.options.model_validate(options))


async def test_arms_share_the_boots_that_they_can() -> None:
    with_menu = await run_host(Rebooting(), MENU)
    assert boot_of(with_menu, "bare") == boot_of(with_menu, "oci") == "none"
    assert boot_of(with_menu, "qemu", accelerator="kvm") == "none"
    assert boot_of(with_menu, "xen") == "xen"
    assert boot_of(with_menu, "xen", scheduler="credit") == "xen:credit"
    without = await run_host(Rebooting())
    assert boot_of(without, "bare") == boot_of(without, "qemu") == "any"


def mark(where: SshRunHost, platform: str, **options: Any) -> str:
    asked = installed().platforms[platform]
    model = asked.options.model_validate(options)
    platforms = where.platforms.values()
    return mark_of(asked, model, where.boot_of(asked, model), where.hypervisor, platforms)


async def test_without_a_kernel_that_runs_without_xen_the_baseline_runs_in_dom0() -> None:
    with_xen = await run_host(Rebooting(boots="xen"))
    assert boot_of(with_xen, "bare") == "any"
    assert await with_xen.under("any", 1) is with_xen.context
    assert mark(with_xen, "bare") == mark(with_xen, "oci") == XEN.mark
    assert mark(with_xen, "xen") == mark(with_xen, "qemu") == ""
    only_xen = await run_host(Rebooting(), {"xen": {"entry": "xen"}})
    assert boot_of(only_xen, "bare") == "xen"
    assert mark(only_xen, "bare") == XEN.mark


async def test_a_baseline_without_xen_below_bears_no_mark() -> None:
    assert mark(await run_host(Rebooting()), "bare") == ""
    booted = await run_host(Rebooting(boots="xen"), MENU)
    assert boot_of(booted, "bare") == "none"
    assert mark(booted, "bare") == ""


async def test_a_host_is_rebooted_only_when_another_hypervisor_runs() -> None:
    host = Rebooting()
    where = await run_host(host, MENU)
    assert await where.under("none", 1) is where.context
    assert host.number == 1
    await where.under("xen", 1)
    assert (host.number, host.boots) == (2, "xen")
    assert where.cpus == HostCpus(online=(0, 1, 2, 3))
    await where.under("xen:credit", 1)
    assert (host.number, host.boots) == (3, "credit")
    await where.under("xen", 2)
    assert host.number == 3, "credit is a scheduler of Xen too"
    await where.under("none", 2)
    assert (host.number, host.boots) == (4, "plain")
    assert where.cpus == HostCpus(online=(0,))


async def test_kvm_has_the_kernel_that_is_named_for_it() -> None:
    menu = {**MENU, "none": {"entry": "bare"}}
    host = Rebooting(menu={"plain": "plain", "bare": "plain", "xen": "xen"})
    where = await run_host(host, menu)
    assert boot_of(where, "bare") == boot_of(where, "oci") == boot_of(where, "qemu") == "none"
    assert boot_of(where, "qemu", accelerator="kvm") == "kvm"
    # Which of two kernels without Xen runs is not known before Tare has booted one.
    for boot in ("kvm", "kvm", "none", "xen", "kvm"):
        await where.under(boot, 1)
    # Another user who reboots it may have chosen the other one.
    host.number += 1
    await where.under("kvm", 2)
    chosen = [asked[1] for asked in host.asked if asked[0] == "grub-reboot"]
    assert chosen == ["plain", "bare", "xen", "plain", "plain"]


async def test_one_kernel_for_both_is_booted_once() -> None:
    for menu in ({"none": {"entry": "plain"}}, {"none": MENU["kvm"], "kvm": MENU["kvm"]}):
        where = await run_host(Rebooting(), menu)
        assert boot_of(where, "qemu", accelerator="kvm") == boot_of(where, "bare") == "none"


async def test_without_a_boot_menu_the_missing_key_is_reported() -> None:
    where = await run_host(Rebooting())
    with pytest.raises(InputError) as caught:
        await where.under("xen:credit", 0)
    needed, runs = caught.value.message.split(", and ")
    assert needed == "needs Xen with its scheduler credit"
    assert runs == "root@x runs a kernel with no hypervisor below it"
    assert "xen-credit: {entry" in caught.value.hint


async def test_where_only_the_scheduler_is_another_the_one_that_runs_is_offered() -> None:
    where = await run_host(Rebooting(boots="xen"))
    with pytest.raises(InputError) as caught:
        await where.under("xen:credit", 0)
    assert caught.value.message.endswith("root@x runs Xen (scheduler credit2)")
    assert "--set arms.ARM.scheduler=credit2" in caught.value.hint


async def test_host_with_an_unexpected_boot_is_reported() -> None:
    where = await run_host(Rebooting(menu={"plain": "plain", "xen": "plain"}), MENU)
    with pytest.raises(
        MachineFault, match="was rebooted for xen and came back with a kernel with no"
    ):
        await where.under("xen", 1)


async def test_unknown_boot_entry_is_reported() -> None:
    host = Rebooting(menu={})
    with pytest.raises(MachineFault, match="no such entry"):
        await (await run_host(host, MENU)).under("xen", 1)
    assert host.number == 1


async def test_a_reboot_by_others_is_noticed() -> None:
    host = Rebooting(boots="xen")
    where = await run_host(host)
    await where.under("xen", 1)
    host.boots, host.number = "plain", 2
    with pytest.raises(InputError, match="runs a kernel with no hypervisor below it"):
        await where.under("xen", 1)
    assert await where.under("any", 1) is where.context


async def test_a_lost_host_is_waited_for() -> None:
    host = Rebooting()
    where = await run_host(host)
    host.down = 5
    assert await where.under("any", 1) is where.context


def test_only_the_hosts_own_hypervisors_count() -> None:
    assert RunningHypervisor().is_("kvm")
    assert not RunningHypervisor().is_("xen")
    xen = RunningHypervisor(XEN, Details("credit2"))
    assert xen.is_("xen")
    assert not xen.is_("xen:credit")
    assert not xen.is_("none")
    assert not xen.is_("acrn")


class Acrn(Bare):
    """A user's own platform, whose machines need a hypervisor that Tare does not know."""

    name = "acrn"
    host_hypervisors = (ACRN,)

    def stated(self, options: BareOptions) -> Statement:
        """Return its offer on a host that is booted with its hypervisor."""
        return replace(super().stated(options), host_boot="acrn")


def with_acrn(**more: Platform[Any]) -> dict[str, Platform[Any]]:
    return {**installed().platforms, "acrn": Acrn(), **more}


async def test_a_hypervisor_of_somebodys_own_is_booted_and_recognised() -> None:
    host = Rebooting(menu={"plain": "plain", "with acrn": "acrn"})
    menu = {"none": {"entry": "plain"}, "others": {"acrn": {"entry": "with acrn"}}}
    where = await run_host(host, menu, with_acrn())
    assert where.boot_of(Acrn(), BareOptions()) == "acrn"
    await where.under("acrn", 1)
    assert (host.number, host.boots, where.hypervisor) == (2, "acrn", "ACRN")
    await where.under("acrn", 1)
    assert host.number == 2
    await where.under("none", 2)
    assert (host.number, host.boots, where.hypervisor) == (3, "plain", "")


async def test_arms_above_another_hypervisor_are_marked() -> None:
    where = await run_host(Rebooting(boots="acrn"), None, with_acrn())
    platforms = where.platforms.values()
    bare = Bare()
    assert where.boot_of(bare, BareOptions()) == "any"
    assert mark_of(bare, BareOptions(), "any", where.hypervisor, platforms) == ACRN.mark
    assert mark_of(bare, BareOptions(), "acrn", "", platforms) == ACRN.mark
    assert mark_of(Acrn(), BareOptions(), "any", where.hypervisor, platforms) == ""


async def test_hypervisor_without_an_entry_names_the_key() -> None:
    with pytest.raises(InputError) as caught:
        await (await run_host(Rebooting(), MENU, with_acrn())).under("acrn", 1)
    assert "needs ACRN, and root@x runs a kernel with no hypervisor" in caught.value.message
    assert "host: {boot: {others.acrn: {entry: …}}}" in caught.value.hint


async def test_unrecognisable_hypervisor_is_refused() -> None:
    host = Rebooting()
    menu = {"others": {"jailhouse": {"entry": "plain"}}}
    with pytest.raises(InputError, match="no platform declares how to detect it"):
        await (await run_host(host, menu)).under("jailhouse", 1)
    assert not host.asked


@pytest.mark.parametrize("word", ["", "kvm", "none", "any", "itself", "xen:credit", "a b"])
def test_a_hypervisors_word_is_one_that_a_boot_can_begin_with(word: str) -> None:
    with pytest.raises(ValueError, match="is not a hypervisor's name"):
        HostHypervisor(word, "Mine", {"/x": ""}, "above it")


def test_a_hypervisor_without_a_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="has no sign"):
        HostHypervisor("mine", "Mine", {}, "above it")


def test_the_way_to_a_host_holds_no_secret_and_is_found_again() -> None:
    spec = HostSpec.model_validate(
        {"ssh": "x", "key": "~/k", "password_env": "PW", "known_hosts": "kh", "patience": 9}
    )
    options = ssh_options(spec)
    assert options.patience_s == 9
    assert options_of(way_of(options)) == options
    with pytest.raises(InputError):
        options_of({**way_of(options), "of_another_version": 1})
