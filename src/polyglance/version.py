"""The version of Polyglance."""

__version__ = "0.2.0"
