"""The roles of XenAPI, and the least one that may make all of Tare's calls.

Which role may make which call is ``allowed_roles`` in xen-api (ocaml/idl/datamodel.ml and
datamodel_vm.ml), and stands with each call in the makers' Management API.
"""

from __future__ import annotations

from collections.abc import Sequence

from tare.errors import InputError

ROLES = ("read-only", "vm-operator", "vm-admin", "vm-power-admin", "pool-operator", "pool-admin")
"""From the least to the one that may do all (ocaml/idl/datamodel_roles.ml)."""
LEAST = "vm-power-admin"
WHY = "VM.start_on, by which a VM is started on the host that was looked at"


def require_role(names: Sequence[str], where: str) -> None:
    """See that one of an account's roles is enough.

    Args:
        names: Its roles; none where the pool does not tell, and nothing is required then.
        where: The pool, in words.

    Raises:
        InputError: None of them is; each is one that is known here.
    """
    if not names or not set(names) <= set(ROLES):
        return
    if all(ROLES.index(name) < ROLES.index(LEAST) for name in names):
        raise InputError(
            f"the account has the role {', '.join(names)} at {where}, which may not make {WHY}",
            f"give it the role {LEAST}: xe subject-role-add uuid=SUBJECT role-name={LEAST}",
        )
