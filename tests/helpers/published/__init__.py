"""Tiny datasets laid out exactly as they are published: names, splits and file formats."""
