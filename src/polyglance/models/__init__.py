"""The four systems of the literature, each a short file: smalr, mmp, m3p, uc2."""
