"""Labels by several methods, with and without a graph, which are weighted by hiding some of the given labels."""

from entourage.label.ensemble.auto import AutoTransduction, Member
from entourage.label.ensemble.stacking import Coverage, calibration_error, coverage_table

__all__ = ["AutoTransduction", "Coverage", "Member", "calibration_error", "coverage_table"]
