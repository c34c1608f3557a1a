"""Reports: fill docs pages and draw plots from the files in benchmarks/results."""
