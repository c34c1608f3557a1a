"""Run the command line: ``python -m polyglance``."""

from polyglance.cli import main

main()
