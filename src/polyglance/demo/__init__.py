"""``polyglance demo``: photographs that come along, searched in many languages, offline."""
