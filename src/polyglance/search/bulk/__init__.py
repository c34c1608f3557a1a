"""Encode on many machines at once into shards of vectors, and import them into a library."""
