"""The command line, as `distrain` and `python -m distrain` start it."""

import signal
import sys

from distrain.errors import Terminated, on_sigterm


def main() -> None:
    """Import and run the command line, and exit with its exit code.

    If Ctrl-C or a stop signal arrives during the import, the process prints one line, and exits
    when the import has ended.
    """
    try:
        with on_sigterm():
            from distrain.cli.main import main as run

            run()
    except KeyboardInterrupt as error:
        is_signal = isinstance(error, Terminated)
        print("terminated" if is_signal else "interrupted", file=sys.stderr)
        sys.exit(128 + (signal.SIGTERM if is_signal else signal.SIGINT))


if __name__ == "__main__":
    main()
