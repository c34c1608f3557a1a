"""Putting the space of meaning to use: finding pictures and clips, and showing what was found."""
