"""What a plan says in words that reports find again; whoever looks for them loads no model."""

ONE_KERNEL = "every guest boots the distribution's general kernel"
"""Begins the note of a plan whose arms cannot all boot a real-time kernel."""

BY_RELEASE = "by `release`"
"""Begins a note on arms that name a release of the distribution."""
