"""Reading scores in the browser: scan, engraving and playback side by side, and corrections with undo."""
