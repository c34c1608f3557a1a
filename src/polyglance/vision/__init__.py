"""Pixels in: pictures, regions, clips, backbones and the feature store."""
