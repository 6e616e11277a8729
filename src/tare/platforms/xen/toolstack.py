"""Xen's toolstack on a host: domains found and destroyed, settings changed and given back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Completed, Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import require_own
from tare.platforms import counted_time as counting
from tare.platforms.xen import output as xen_output
from tare.platforms.xen.output import Domain

XL = "xl"
LIST = (XL, "list", "-v")
"""Tells of all domains: what each has had of the CPUs (``Time(s)``, xl(1))."""
INSTALL = "apt-get install --no-remove xen-system-amd64, then reboot and choose Xen in GRUB"
START_XENSTORED = "start Xen's services, for example: systemctl start xenstored xenconsoled"
COMMAND_S = 60.0
"""Longer than any of xl's commands takes, also under emulation; one that waits longer hangs."""
DESTROY_S = 60.0
_GONE_S = 15.0
_LOOK_S = 0.2
# Its end is told over the network, which is to be quiet while the guest boots; once the guest is
# idle, what is left of the pause passes at once.
_UNPAUSED = f'{XL} unpause "$1" && sleep 10'


async def xl(host: Host, *arguments: str, timeout_s: float = COMMAND_S) -> Completed:
    """Run ``xl`` to its end; a status other than 0 is no error here.

    Raises:
        InputError: It is not installed.
        MachineFault: It does not end: xenstored does not answer it.
    """
    try:
        return await host.run([XL, *arguments], timeout_s=timeout_s)
    except InputError as error:
        raise InputError("Xen's tools are not installed here: there is no xl", INSTALL) from error
    except MachineFault as fault:
        if not fault.transient or "did not end" not in fault.message:
            raise
        raise MachineFault(
            f"`xl {' '.join(arguments[:1])}` did not end within {timeout_s:g} s: "
            "Xen's toolstack does not answer",
            START_XENSTORED,
        ) from fault


async def asked(host: Host, *arguments: str) -> str:
    """Return what ``xl`` printed.

    Raises:
        InputError: It is not installed.
        MachineFault: It refused, in Xen's words; or it does not end.
    """
    done = await xl(host, *arguments)
    if not done.ok:
        said = (done.stderr + b"\n" + done.stdout).decode(errors="replace")
        words = xen_output.reason(said) or "no reason"
        raise MachineFault(f"Xen does not carry out `xl {arguments[0]}`; it says: {words}")
    return done.stdout.decode(errors="replace")


async def all_domains(host: Host) -> tuple[Domain, ...]:
    """Return all domains, also half-built and dying ones; raises as :func:`asked`."""
    return xen_output.domains(await asked(host, *LIST[1:]))


async def find_domain(host: Host, name: str, uuid: str) -> Domain | None:
    """Return the domain with this name, or with this identity while it has no name yet."""
    for domain in await all_domains(host):
        if domain.id and (domain.uuid == uuid if domain.uuid and uuid else domain.name == name):
            return domain
    return None


async def unpause(host: Host, domain: int, *, counted_by: Path | None = None) -> None:
    """Let a domain go.

    Args:
        host: The host.
        domain: The domain's number.
        counted_by: The agent on the host, where the host's time counts instructions: the domain
            begins at ten full minutes of it then, so that its clock lies the same against the
            host's timers in each boot. None elsewhere.

    Raises:
        MachineFault: As :func:`asked`.
    """
    if counted_by is None:
        await asked(host, "unpause", str(domain))
        return
    call = [str(counted_by), "exec", "--aligned", "--", "sh", "-c", _UNPAUSED, "sh", str(domain)]
    done = await host.run(call, timeout_s=counting.BEGUN_S)
    if not done.ok:
        raise MachineFault(f"Xen does not carry out `xl unpause`; it says: {done.words()}")


async def destroy_domain(host: Host, name: str, uuid: str, *, patience_s: float = _GONE_S) -> bool:
    """Destroy a domain and wait until Xen has let go of it.

    Args:
        host: The host.
        name: The domain's name.
        uuid: Its identity, which counts where both are known.
        patience_s: Seconds that it may take to go after it was destroyed.

    Returns:
        Whether there was one.

    Raises:
        MachineFault: It survives.
    """
    domain = await find_domain(host, name, uuid)
    if domain is None:
        return False
    done = await xl(host, "destroy", str(domain.id), timeout_s=DESTROY_S)
    deadline = time.monotonic() + patience_s
    while (left := await find_domain(host, name, uuid)) is not None:
        if time.monotonic() > deadline:
            said = "" if done.ok else f": {xen_output.reason(done.stderr.decode(errors='replace'))}"
            raise MachineFault(
                f"the domain {name} (id {left.id}) survives its destruction: it is {left.words}, "
                f"and holds {left.memory >> 20} MiB{said}",
                f"look for what holds its memory (`xl debug-keys q; xl dmesg`), then `xl destroy "
                f"{left.id}` and `tare clean`; a reboot of the host ends it in any case",
            )
        await asyncio.sleep(_LOOK_S)
    return True


# Settings: of a pool's scheduler, and the CPUs of dom0's vCPUs.

Values = Mapping[str, str]


async def scheduler_values(host: Host, scheduler: str, pool: str) -> dict[str, str]:
    """Return a pool's scheduler parameters in microseconds, as text.

    Raises:
        MachineFault: Xen refuses, in its words.
    """
    shown = await asked(host, f"sched-{scheduler}", "-s", "-p", pool)
    return {name: str(value) for name, value in xen_output.parameters(shown).items()}


async def set_scheduler(host: Host, scheduler: str, pool: str, values: Values) -> None:
    """Set a pool's scheduler parameters (``tslice``, ``ratelimit``; microseconds as text).

    Raises:
        MachineFault: Xen refuses, in its words; or it took something else than it was told.
    """
    words = []
    if "tslice" in values:
        words += ["-t", str(int(values["tslice"]) // 1000)]
    if "ratelimit" in values:
        words += ["-r", values["ratelimit"]]
    await asked(host, f"sched-{scheduler}", "-s", "-p", pool, *words)
    now = await scheduler_values(host, scheduler, pool)
    if any(now.get(name) != value for name, value in values.items()):
        raise MachineFault(f"Xen took {now} where it was told {dict(values)} for pool {pool}")


async def pinned_cpus(host: Host) -> dict[str, str]:
    """Return the CPUs that each of dom0's vCPUs may use, as Xen writes them, by its number."""
    listed = xen_output.vcpus(await asked(host, "vcpu-list", "0"))
    return {str(vcpu.number): vcpu.hard for vcpu in listed if vcpu.domain == 0}


async def pin_dom0(host: Host, values: Values) -> None:
    """Bind dom0's vCPUs; raises as :func:`asked`."""
    for number, cpus in values.items():
        # "-" leaves the preference among them as it is.
        await asked(host, "vcpu-pin", "0", number, cpus, "-")


async def dom0_vcpus(host: Host) -> dict[str, str]:
    """Return how many vCPUs dom0 has that are on, as text."""
    known = {domain.id: domain for domain in await all_domains(host)}
    return {"vcpus": str(known[0].vcpus)} if 0 in known else {}


async def set_dom0_vcpus(host: Host, wanted: int) -> None:
    """Turn vCPUs of dom0 on or off, the last ones.

    Raises:
        MachineFault: Xen refuses, in its words; or dom0's kernel does not follow.
    """
    await asked(host, "vcpu-set", "0", str(wanted))
    # Its kernel turns them off by itself; elsewhere udev turns them on.
    listed = await host.run(["sh", "-c", _TURN_ON, "sh", str(wanted)], timeout_s=COMMAND_S)
    deadline = time.monotonic() + _GONE_S
    while (now := (await dom0_vcpus(host)).get("vcpus")) != str(wanted):
        if time.monotonic() > deadline:
            words = f": {listed.words()}" if not listed.ok else ""
            raise MachineFault(
                f"dom0 has {now} vCPUs, and {wanted} were asked for{words}",
                "ask for no more than Xen's dom0_max_vcpus",
            )
        await asyncio.sleep(_LOOK_S)


_TURN_ON = """
number=0
while [ "$number" -lt "$1" ]; do
    switch=/sys/devices/system/cpu/cpu$number/online
    tries=0
    while [ "$number" -gt 0 ] && [ ! -e "$switch" ] && [ "$tries" -lt 20 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ ! -e "$switch" ] || [ "$(cat "$switch")" = 1 ] || echo 1 >"$switch" || exit 1
    number=$((number + 1))
done
"""


async def _read(host: Host, details: Mapping[str, object]) -> dict[str, str]:
    if details["what"] == "pin":
        return await pinned_cpus(host)
    if details["what"] == "dom0-vcpus":
        return await dom0_vcpus(host)
    if details["what"] == "dom0-weight":
        shown = await asked(host, f"sched-{details['scheduler']}", "-d", "0")
        found = xen_output.weight_and_cap(shown)
        return {"weight": str(found["weight"])} if "weight" in found else {}
    return await scheduler_values(host, str(details["scheduler"]), str(details["pool"]))


async def _write(host: Host, details: Mapping[str, object], values: Values) -> None:
    if details["what"] == "pin":
        await pin_dom0(host, values)
    elif details["what"] == "dom0-vcpus":
        await set_dom0_vcpus(host, int(values["vcpus"]))
    elif details["what"] == "dom0-weight":
        words = ("-d", "0", "-w", values["weight"])
        await asked(host, f"sched-{details['scheduler']}", *words)
    else:
        await set_scheduler(host, str(details["scheduler"]), str(details["pool"]), values)


@asynccontextmanager
async def changed(
    host: Host, ledger: Ledger, values: Values, **place: str
) -> AsyncIterator[dict[str, str]]:
    """Give settings of Xen other values for as long as the block lasts.

    Machines of one batch want the same at once: the first changes it, the last gives it back,
    and the ledger's open entries count the holders.

    Args:
        host: The host.
        ledger: Is told before the change.
        values: What to set.
        **place: ``what="pin"``; or ``what="scheduler"`` with ``scheduler`` and ``pool``.

    Yields:
        What the settings were before.

    Raises:
        MachineFault: Xen refuses, in its words; or another machine of the run wants other values.
    """
    wanted = dict(values)
    async with ledger.guard:
        holders = _holders(ledger, place)
        if holders:
            before = dict(holders[0].details["before"])
            if holders[0].details["value"] != wanted:
                raise MachineFault(
                    f"Xen's {_place(place)} is held at {holders[0].details['value']} by another "
                    f"machine of this run, and {wanted} is wanted beside it"
                )
        now = await _read(host, place)
        now = {name: now[name] for name in wanted if name in now}
        if missing := wanted.keys() - now.keys():
            raise MachineFault(f"Xen's {_place(place)} has no {', '.join(sorted(missing))}")
        if not holders:
            before = now
        entry = ledger.record("xen-setting", before=before, value=wanted, **place)
        try:
            # Also where another holds it: somebody else may have set it since.
            if now != wanted:
                await _write(host, place, wanted)
        except BaseException:
            if not holders:
                await _give_back(host, entry)
            ledger.done(entry)
            raise
    try:
        yield before
    finally:
        async with ledger.guard:
            others = [one for one in _holders(ledger, place) if one.number != entry.number]
            if not others:
                await _give_back(host, entry)
            ledger.done(entry)


def _holders(ledger: Ledger, place: Mapping[str, str]) -> list[Entry]:
    return [
        entry
        for entry in ledger.open_entries()
        if entry.kind == "xen-setting"
        and all(entry.details.get(key) == value for key, value in place.items())
    ]


def _place(place: Mapping[str, object]) -> str:
    if place["what"] == "pin":
        return "placement of dom0's vCPUs"
    if place["what"] == "dom0-vcpus":
        return "number of dom0's vCPUs"
    if place["what"] == "dom0-weight":
        return "weight of dom0"
    return f"scheduler {place['scheduler']} of pool {place['pool']}"


async def _give_back(host: Host, entry: Entry) -> str:
    before: Mapping[str, str] = entry.details["before"]
    value: Mapping[str, str] = entry.details["value"]
    now = await _read(host, entry.details)
    now = {name: now[name] for name in before if name in now}
    if now == before:
        return ""
    if now != value:
        return (
            f"Xen's {_place(entry.details)} is {now}, which is neither what Tare set ({value}) "
            "nor what it was: left."
        )
    await _write(host, entry.details, before)
    return f"Xen's {_place(entry.details)} is {before} again; Tare had set {value}."


async def undo_domain(host: Host, entry: Entry) -> str:
    """Destroy the domain that a ledger's entry names (id, its name; uuid).

    Raises:
        Refused: Its name is not one of Tare's.
        MachineFault: As :func:`destroy_domain`.
    """
    name, uuid = str(entry.details["id"]), str(entry.details.get("uuid", ""))
    require_own(name)
    if entry.boot != host.boot_id():
        return ""
    return f"Destroyed domain {name}." if await destroy_domain(host, name, uuid) else ""


async def undo_setting(host: Host, entry: Entry) -> str:
    """Give back the settings of Xen that a ledger's entry names; raises as :func:`asked`."""
    if entry.boot != host.boot_id():
        return ""
    return await _give_back(host, entry)
