"""Engravers (Verovio and LilyPond) and fonts."""
