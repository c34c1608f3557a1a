"""Benchmarks: `speed` times things, `experiments` trains and evaluates, `reports` fills docs pages.

Run them from the root of the repository, such as ``python -m benchmarks.speed.latency``.
Results are JSON files in ``benchmarks/results``, each with its date, commit and machine.
"""
