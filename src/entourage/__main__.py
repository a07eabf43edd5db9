"""`python -m entourage` is `entourage`."""

from entourage.cli.main import main

main()
