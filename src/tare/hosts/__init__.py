"""The computers that hypervisors run on: commands, files, streams, and a ledger of changes."""

from tare.hosts.contract import Completed, Host, Process
from tare.hosts.ledger.cleanup import clean, clean_all
from tare.hosts.ledger.ledger import Entry, Ledger, ledger_path, state_dir
from tare.hosts.ledger.settings import FileSetting, changed
from tare.hosts.local import LocalHost
from tare.hosts.lock import host_lock
from tare.hosts.processes import OwnedProcess, start_owned

__all__ = [
    "Completed",
    "Entry",
    "FileSetting",
    "Host",
    "Ledger",
    "LocalHost",
    "OwnedProcess",
    "Process",
    "changed",
    "clean",
    "clean_all",
    "host_lock",
    "ledger_path",
    "start_owned",
    "state_dir",
]
