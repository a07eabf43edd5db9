"""Data sets of engraved pages: workers, formats and statistics."""
