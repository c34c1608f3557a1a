"""Corpora: one small reader per dataset's own format, the toy world, and what a manifest holds."""
