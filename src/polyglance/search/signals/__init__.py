"""Signals beside pixels: names of files and folders, dates, places, and text in pictures."""
