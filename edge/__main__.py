"""The command line ``lethe``; also ``python -m edge``."""

import sys
from typing import NoReturn

from edge.cli.app import app
from shared.commandline import run_app


def main() -> NoReturn:
    """Run ``lethe`` and exit."""
    sys.exit(run_app(app, "lethe"))


if __name__ == "__main__":
    main()
