"""Computers that are reached over SSH, by connections that may break and come back."""
