"""``python -m tare`` is the command ``tare``."""

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while all this is loaded ends it, without a word of where.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tare.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
