"""Labelling in the browser: labels on disk, the game in the loop, pictures, the map, and the routes of the page."""
