"""``polyglance demo``: search the included photographs in many languages, offline."""
