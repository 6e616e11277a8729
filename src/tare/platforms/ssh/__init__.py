"""Machines that exist: measured over SSH, and otherwise left as they are."""
