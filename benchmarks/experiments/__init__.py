"""Experiments: models trained and evaluated, with what those of one kind share."""
