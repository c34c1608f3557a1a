"""Datasets: readers of published formats, the toy dataset, manifests and tokenised captions."""
