"""``python -m tare`` is the command ``tare``."""

import sys

from tare.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
