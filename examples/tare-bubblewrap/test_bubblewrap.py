"""Bubblewraps pass the cases that every platform passes."""

from tare_bubblewrap import Bubblewrap

from tare.testing.conformance import PlatformCases


class TestBubblewrap(PlatformCases):
    """With the options' defaults."""

    platform = Bubblewrap()
    killed_words = "killed by signal 9"
