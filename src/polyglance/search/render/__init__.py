"""Render search results: HTML pages, images, and lines in a terminal."""
