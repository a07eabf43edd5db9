"""Rhythm of a measure: durations, onsets and voices."""
