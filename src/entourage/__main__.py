"""Run the command line: `python -m entourage` does the same as `entourage`."""

from entourage.cli.main import main

main()
