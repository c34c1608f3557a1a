"""The version of Polyglance."""

__version__ = "0.1.0"
