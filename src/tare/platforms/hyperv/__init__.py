"""Hyper-V: virtual machines created and removed over PowerShell remoting."""
