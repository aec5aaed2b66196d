"""The command line, as `distrain` and `python -m distrain` start it."""

import sys

from distrain.errors import on_sigterm, word_and_exit_code


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
        word, code = word_and_exit_code(error)
        print(word, file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    main()
