"""Run the command line: `python -m entourage` is equal to `entourage`."""

from entourage.cli.main import main

main()
