"""Run directories, records of finished units, and metrics logs."""
