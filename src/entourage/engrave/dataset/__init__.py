"""Data sets of engraved pages: workers, formats, statistics."""
