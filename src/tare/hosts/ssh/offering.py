"""Which keys a login offers, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts.ssh.options import NO_AGENT, SshOptions

_PUBLIC = ".pub"


def offered(options: SshOptions) -> dict[str, Any]:
    """Return what ``asyncssh.connect`` gets about keys.

    Raises:
        InputError: The key file that a study names, or its passphrase, is not there.
    """
    passphrase = options.passphrase()
    if options.key is not None:
        if not options.key.is_file():
            raise InputError(f"there is no key file {options.key}")
        return {"client_keys": [str(options.key)], "passphrase": passphrase, **_agent(options)}
    # As ssh does: what a configuration names and is not there, or only an agent can open, is no
    # fault; a file of a public key says which of an agent's keys is meant.
    private = [key for key in options.identities if key.suffix != _PUBLIC and key.is_file()]
    found: dict[str, Any] = {
        "client_keys": [str(key) for key in private],
        "passphrase": passphrase,
        "ignore_encrypted": passphrase is None,
        **_agent(options),
    }
    if certificates := [str(file) for file in options.certificates if file.is_file()]:
        found["client_certs"] = certificates
    if options.identities_only and options.identities:
        meant = [str(file) for file in map(_public, options.identities) if file.is_file()]
        found |= {"agent_identities": meant} if meant else {"agent_path": None}
    return found


def _agent(options: SshOptions) -> dict[str, Any]:
    if options.ssh_agent == NO_AGENT:
        return {"agent_path": None}
    return {"agent_path": options.ssh_agent} if options.ssh_agent else {}


def _public(key: Path) -> Path:
    return key if key.suffix == _PUBLIC else key.with_name(f"{key.name}{_PUBLIC}")
