"""Layout of a page: staves, systems, bar lines and measures."""
