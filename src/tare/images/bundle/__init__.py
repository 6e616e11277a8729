"""Bundles: kernels and toolboxes in one file, made on a computer with apt and used on any other."""
