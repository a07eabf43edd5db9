"""Reading, composition and modification of scores."""
