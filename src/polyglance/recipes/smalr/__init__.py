"""Recipes of SMALR and what it is compared with: texts, pre-training, consistency."""
