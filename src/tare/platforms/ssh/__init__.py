"""Existing machines: they are measured over SSH, and otherwise left unchanged."""
