"""Recipes of models that read a sentence beside a picture, M3P and UC2."""
