"""What Python says of a node's certificate is told with what helps."""

from __future__ import annotations

import pytest

from tare.errors import InputError
from tare.platforms.proxmox.session import STRICTLY, ProxmoxSession

requests = pytest.importorskip("requests", reason="pip install 'hypertare[proxmox]'")
pytest.importorskip("proxmoxer", reason="pip install 'hypertare[proxmox]'")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"certificate verify failed: {STRICTLY} (_ssl.c:1032)", "Python 3.11 or 3.12"),
        ("certificate verify failed: self-signed certificate in chain", "pve-root-ca.pem"),
    ],
)
def test_a_certificate_that_is_not_taken_is_told_with_what_helps(
    words: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_PROXMOX_USER", "root@pam")
    monkeypatch.setenv("TARE_PROXMOX_PASSWORD", "planted-word")
    way = {"address": "pve.example", "port": None, "ca": "/ca.pem", "credentials": None}
    told = ProxmoxSession(way).fault(requests.exceptions.SSLError(words))
    assert isinstance(told, InputError) and hint in told.hint
