"""XenServer and XCP-ng: machines made and removed over XenAPI."""
