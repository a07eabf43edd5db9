"""Engravers (Verovio and LilyPond) and their fonts."""
