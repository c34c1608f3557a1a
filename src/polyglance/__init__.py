"""Polyglance: one space of meaning for pictures, videos and sentences in any language."""

__version__ = "0.1.0"
