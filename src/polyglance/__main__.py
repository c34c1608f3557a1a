"""``python -m polyglance``: the command line."""

from polyglance.cli import main

main()
