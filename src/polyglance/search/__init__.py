"""Search pictures and clips by text or image: `polyglance.search.library.Library`."""
