"""Certificates made as `tare help fleet` says are good, also by the strict rules of Python 3.13."""

from __future__ import annotations

import re
import ssl
import subprocess
from pathlib import Path

from tare.cli.fleet_checks import require_usable

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "fleet.md"


def context(place: Path, name: str, purpose: ssl.Purpose) -> ssl.SSLContext:
    """Return one side's context as Dask makes it, with the stricter rules added."""
    made = ssl.create_default_context(purpose, cafile=place / "ca.pem")
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(place / f"{name}.pem", place / f"{name}.key")
    return made


def test_certificates_made_by_the_docs_let_both_sides_trust_each_other(tmp_path: Path) -> None:
    (words,) = re.findall(r"```sh\n([^`]*openssl[^`]*)```", DOCS.read_text())
    subprocess.run(["sh", "-ec", words], cwd=tmp_path, check=True, capture_output=True)
    for name in ("scheduler", "worker", "controller"):
        require_usable(tmp_path / "ca.pem", tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context(tmp_path, "worker", ssl.Purpose.SERVER_AUTH).wrap_bio(back, there)
    server = context(tmp_path, "scheduler", ssl.Purpose.CLIENT_AUTH)
    served = server.wrap_bio(there, back, server_side=True)
    left = [client, served]
    for _ in range(10):
        for side in tuple(left):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(side)
    assert not left
    assert "worker" in str(served.getpeercert())
