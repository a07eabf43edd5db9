"""Labelling in the browser: labels on disk, the game after each change, pictures, the map, the routes of the page."""
