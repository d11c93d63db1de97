"""`python -m emitc` is the command line."""

from emitc.cli import main

main()
