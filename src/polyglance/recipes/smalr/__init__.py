"""Recipes of SMALR and what it is compared with: texts, dictionaries, training, measuring."""
