"""`python -m emitc` is the command line."""

from emitc.cli.main import main

main()
