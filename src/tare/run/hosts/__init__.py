"""The hosts of a run: local, over SSH or in the lab, and booted as each arm needs."""
