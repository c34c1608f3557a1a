"""Run the command line: ``polyglance``, or ``python -m polyglance``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported, too, prints no traceback."""
    try:
        from polyglance.cli import main as run

        run()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
