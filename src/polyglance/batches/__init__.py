"""Corpora as tables of tensors, and the packed batches that are taken from them."""
