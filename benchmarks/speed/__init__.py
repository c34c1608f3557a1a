"""Benchmarks of speed, memory and robustness."""
