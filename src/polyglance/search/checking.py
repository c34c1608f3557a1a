"""Whether the files of a library are still what was indexed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from polyglance.errors import printable, reason
from polyglance.search.files import content_hash
from polyglance.search.store import Store


def changed_files(store: Store) -> Iterator[str]:
    """A sentence for each item whose file is gone, unreadable or another; all bytes are read."""
    for entry in store.entries():
        item = entry.item
        try:
            same = os.stat(item.path).st_size == item.stamp.size
            if not same or content_hash(item.path) != item.content:
                yield f"{printable(item.path)}: the file is not as it was indexed: index again"
        except OSError as error:
            yield f"{printable(item.path)}: the file cannot be read ({reason(error)}): index again"
