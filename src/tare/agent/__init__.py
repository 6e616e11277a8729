"""Communicate with the agent in a machine: channels, frames, the client."""

from tare.agent.barrier import Barrier
from tare.agent.channel import Channel, StreamChannel
from tare.agent.client import AgentClient, Hello, LoadHandle, Outcome
from tare.agent.clocktrust import ClockReading, ClockTrust, judge
from tare.agent.connection import NoiseStats
from tare.agent.series import Series

__all__ = [
    "AgentClient",
    "Barrier",
    "Channel",
    "ClockReading",
    "ClockTrust",
    "Hello",
    "LoadHandle",
    "NoiseStats",
    "Outcome",
    "Series",
    "StreamChannel",
    "judge",
]
