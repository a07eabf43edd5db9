"""Run directories and metrics logs."""
