"""``python -m tare`` is the command ``tare``."""

import gc
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while all this is loaded ends it, without a word of where.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Imports keep nearly all that they allocate. By default it is searched for garbage after every 700
# objects, which takes 50 ms of the start of `tare run`. Its imports allocate fewer than this.
gc.set_threshold(200_000, 10, 10)

from tare.cli.main import main  # noqa: E402 - what is above has to come first

if __name__ == "__main__":
    sys.exit(main())
