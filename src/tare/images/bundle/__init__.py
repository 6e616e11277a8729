"""Bundles: kernels and toolboxes in one file, built where apt is and used anywhere."""
