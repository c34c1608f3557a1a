"""Recipes of models that answer questions about pictures."""
