"""Hyper-V: machines made and removed over PowerShell remoting."""
