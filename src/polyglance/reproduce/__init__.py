"""Reproduce the tables and figures of the four papers, and our own: one target each."""
