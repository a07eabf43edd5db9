"""Reading, composing and modifying of scores."""
