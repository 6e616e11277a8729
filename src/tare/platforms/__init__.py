"""Platforms, one per file or folder, and the contract that each platform fulfils."""
