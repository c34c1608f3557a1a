"""Plots as SVG images, without a plotting library."""
