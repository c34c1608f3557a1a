"""Faults: what a library does when its disk, its process or its file fails."""
