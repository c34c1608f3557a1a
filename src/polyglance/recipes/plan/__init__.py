"""``polyglance plan``: what a recipe costs, from a short probe with synthetic data.

`synthetic` builds the recipe's own stages on random weights and data, `probe` times their
steps, and `estimate` multiplies that up to the whole run.
"""
