"""What is found out, checked, built and calibrated before the first block."""
