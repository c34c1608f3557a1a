"""SMALR, its ablations and the word models that it is compared with."""
