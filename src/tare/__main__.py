"""``python -m tare`` is the command ``tare``."""

import gc
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # During these imports, Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Imports keep nearly all objects that they allocate. By default the garbage collector runs after
# every 700 new objects, which takes 50 ms of the start of `tare run`. The imports allocate fewer
# objects than this threshold.
gc.set_threshold(200_000, 10, 10)

from tare.cli.main import main  # noqa: E402 - what is above has to come first

if __name__ == "__main__":
    sys.exit(main())
