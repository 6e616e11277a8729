"""What may be chosen about the load that goes through a proxy."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tare.units import Duration, Size
from tare.workloads.contract import Parameters

MOST_ADDRESSES = 16
"""Of the origin's, under which it is asked in turn."""

MOST_ROUNDS = 100


def _version(value: object) -> object:
    """Return a version of HTTP as text, which YAML without quotes takes for a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {1.0: "1.0", 1.1: "1.1", 2.0: "2"}.get(float(value), value)
    return value


class ProxyParameters(Parameters):
    """What is asked for through the proxy, by how many at once, and for how long."""

    size: Size = Field(
        default=1024,
        ge=0,
        le=1 << 30,
        description="The object that each request asks for; it may be empty.",
    )
    requests: Literal["connection", "keep-alive"] = Field(
        default="connection",
        description="Whether each request has a TCP connection of its own, or they share them; "
        "then those to the origin are shared too.",
    )
    http: Annotated[Literal["1.0", "1.1", "2"], BeforeValidator(_version)] = Field(
        default="1.0",
        description="The version of HTTP that the client speaks; the origin is asked by HTTP/1 in "
        "any case. HTTP/2 has one request at a time on each connection, and needs `keep-alive`.",
    )
    tls: Literal["none", "ecdsa-p256", "rsa-2048"] = Field(
        default="none",
        description="The key by which HAProxy ends TLS 1.3 on the client's side; `none`: it ends "
        "none. What is between it and the origin is not secured.",
    )
    tls_cipher: Literal["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"] = Field(
        default="aes-128-gcm", description="The cipher of TLS."
    )
    tls_resumption: bool = Field(
        default=False,
        description="Whether connections take up what an earlier one agreed on, and so need no "
        "signature; how many did is recorded.",
    )
    haproxy_threads: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Of HAProxy; if left out, as many as it takes by itself: one per CPU it may "
        "use.",
    )
    origin_workers: int = Field(
        default=1, ge=1, le=256, description="Processes of the origin, which is an nginx."
    )
    origin_addresses: int = Field(
        default=1,
        ge=1,
        le=MOST_ADDRESSES,
        description="Under how many addresses HAProxy asks the origin, in turn: it has all its "
        "ports towards each, so that more of them last for more connections per second. An origin "
        "that is a machine of the study has one.",
    )
    most_connections: int = Field(
        default=256,
        ge=4,
        le=16_384,
        description="Requests under way at once: they are raised from 4 on, doubled each time, "
        "until the rate stops rising, and to this at most.",
    )
    step: Duration = Field(
        default=1.0, ge=0.1, le=600, description="How long each number of connections is tried."
    )
    duration: Duration = Field(
        default=5.0,
        ge=0.5,
        le=1e5,
        description="How long the load counts that keeps the proxy full, and each of those at 50, "
        "70 and 90 % of it.",
    )
    warmup: Duration = Field(default=0.5, ge=0, le=3600, description="Load before each of them.")
    offered: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Requests per second that are offered on every arm alike, for latencies that "
        "can be compared even where an end was the limit; if left out, that is not measured.",
    )
    rounds: int = Field(
        default=1,
        ge=1,
        le=MOST_ROUNDS,
        description="How often the rate that all arms are offered and the load that keeps the "
        "proxy full are repeated, in turn; each of their figures is the mean over the rounds. With "
        "`blocks: {turns: true}` both arms change places after each, so many short rounds compare "
        "them more closely than one long load where the host’s speed changes.",
    )
    at_shares: bool = Field(
        default=True,
        description="Whether response times are taken at 50, 70 and 90 % of what the proxy can.",
    )
    timeout: Duration = Field(
        default=10.0, gt=0, le=3600, description="A request that takes longer is given up."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.http == "2" and self.requests != "keep-alive":
            raise ValueError("HTTP/2 has many requests a connection: write `requests: keep-alive`")
        if self.tls == "none" and self.tls_resumption:
            raise ValueError("`tls-resumption` needs TLS: write `tls: ecdsa-p256`, or leave it out")
        return self
