"""XenServer and XCP-ng: virtual machines created and removed over XenAPI."""
