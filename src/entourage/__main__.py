"""`python -m entourage` is `entourage`."""

from entourage.cli import main

main()
