"""Recipes of MMP: on features of clips, and on photographs as the default model."""
