"""Symbols of a system, assembled to chords, rests and signatures."""
