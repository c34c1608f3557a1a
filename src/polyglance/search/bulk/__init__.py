"""Encoding by many machines at once: shards of vectors, and their way into a library."""
