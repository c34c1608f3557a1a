"""What the SQL of the two databases writes differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyglance.search.serialization import ITEM_COLUMNS


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two databases write differently."""

    id_table: str
    """The table whose ``id`` and ``item`` are those of vectors."""
    vectors: str
    """A FROM clause with the columns id, item, start, stop and vector."""
    vector_order: str
    """The column of ``vectors`` that orders the vectors of an item."""
    in_paths: str
    in_ids: str
    """A condition that a value is in a list."""
    among_ids: str
    """A FROM clause of the rows of ``id_table`` with listed ids, up to the join with items."""
    as_list: Callable[[list[Any]], Any]
    """Converts a list to the value that these conditions take."""
    item_columns: str = f"items.id, {ITEM_COLUMNS}, parts, thumbnail, items.checksum"
    """The columns of ``items`` that `SqlStore._item` takes."""
