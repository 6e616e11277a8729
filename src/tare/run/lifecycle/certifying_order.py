"""What ``tare certify`` is asked for: a platform, and options as a study's arm would have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tare.errors import InputError
from tare.plaintext import plain_line
from tare.platforms.contract import Platform, PlatformOptions
from tare.registry import installed
from tare.run.preflight.host_access import ALLOWING
from tare.study.reading.checking import message_of, suggestion
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.named_hypervisors import options_named

_WORDS = 500
ADDRESS = "address"
"""The option that says which server is meant."""
DOCTOR = "`tare doctor` lists them"
HAS = "`tare study PLATFORM` shows every option"


@dataclass(frozen=True)
class Order:
    """What is to be certified.

    Args:
        platform: The platform.
        options: Its options.
        given: The same as they were given, for the study.
        minutes: How long the study may take.
        figures: Whether values go into the file.
        named_in: The hosts file that some of the options stand in; None: they are all given.
        host_access: Whether the command line allows raw arguments that may act on hosts.
    """

    platform: Platform[Any]
    options: PlatformOptions
    given: dict[str, Any]
    minutes: float
    figures: bool
    named_in: Path | None = None
    host_access: bool = False


def asked(
    name: str,
    values: Sequence[str],
    hosts: KnownHosts,
    *,
    minutes: float,
    figures: bool,
    host_access: bool = False,
) -> Order:
    """Return what a command line asks for.

    Args:
        name: The platform.
        values: Its options, each as ``KEY=VALUE``; they go before the hosts file.
        hosts: The hosts file, which may name the user's own hypervisor of that platform.
        minutes: How long the study may take.
        figures: Whether values go into the file.
        host_access: Whether the command line allows raw arguments that may act on hosts.

    Raises:
        InputError: There is no such platform or option, the platform cannot be certified, or an
            option may act on a host and is not allowed.
    """
    known = installed().platforms
    if name not in known:
        raise InputError(f"there is no platform {name}{suggestion(name, known)}", DOCTOR)
    platform, said = known[name], _given(values)
    named = _named(platform, hosts, said)
    given = {**named, **said}
    options = _options(platform, given)
    if not platform.writes(options):
        raise InputError(
            f"{name} cannot be certified: it does not state what it makes and changes on a host",
            "whoever wrote it lets it say so, by `writes` (`tare help extending`)",
        )
    if not host_access and (asking := platform.host_access(options)):
        told = "; ".join(f"{each.option}: `{each.value}` {each.effect}" for each in asking)
        raise InputError(told, f"remove it; or, if you trust it with the host, add {ALLOWING}")
    named_in = hosts.path if named else None
    return Order(platform, options, given, minutes, figures, named_in, host_access)


def _named(platform: Platform[Any], hosts: KnownHosts, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the hypervisor that the hosts file names, if it is the one meant."""
    own, wrong = options_named(platform.name, hosts, platform.options)
    if own is not None and said.get(ADDRESS, own.get(ADDRESS)) != own.get(ADDRESS):
        # Folders, pools and storages of one server are none of another's.
        return {}
    if own is None:
        raise InputError(plain_line(wrong[0], _WORDS), HAS)
    return own


def _given(values: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals:
            raise InputError(
                f"--set {value}: there is no value in it",
                "write KEY=VALUE, such as --set accelerator=kvm",
            )
        try:
            given[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            # As `boot=[datastore1] tare.iso` is: a name that only looks like a list.
            given[key] = text
    return given


def _options(platform: Platform[Any], given: Mapping[str, Any]) -> PlatformOptions:
    """Return a platform's options; raises InputError where no study could have them."""
    name = platform.name
    try:
        options: PlatformOptions = platform.options.model_validate(
            {key.replace("-", "_"): value for key, value in given.items()}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            written = str(first["loc"][0]).replace("_", "-")
            if told := platform.options.instead.get(written):
                words = plain_line(f"{name} has no option {written}: {told}", _WORDS)
                raise InputError(words, HAS) from error
            keys = [key.replace("_", "-") for key in platform.options.model_fields]
            near = suggestion(first["loc"][0], keys)
            raise InputError(f"{name} has no option {first['loc'][0]}{near}", HAS) from error
        place = ".".join(str(part) for part in first["loc"]).replace("_", "-")
        words = plain_line(f"{name}: {place}: {message_of(first)}", _WORDS)
        raise InputError(words, HAS) from error
    # What a study file would be refused for: a guest that cannot dial back is waited for in vain.
    for option, fault in options.faults(True):
        words = plain_line(f"{name}: {option.replace('_', '-')}: {fault}", _WORDS)
        raise InputError(words, HAS)
    return options
