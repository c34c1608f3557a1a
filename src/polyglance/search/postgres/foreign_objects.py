"""The query for what no library has: objects by which a stranger's code would run.

Triggers, rules, views, policies, and expressions in columns, constraints and indexes run with
the rights of whoever uses a table. So do functions and operators that are found in the place of
PostgreSQL's own, since theirs may fit the types of a call better.
"""

from __future__ import annotations

_OURS = "relnamespace = 'polyglance'::regnamespace"
_OF_EXTENSION = (
    "EXISTS (SELECT 1 FROM pg_depend WHERE classid = '{catalog}'::regclass"
    " AND objid = found.oid AND deptype = 'e')"
)
_KIND_CHECK = "CHECK ((kind = ANY (ARRAY[''picture''::text, ''clip''::text])))"


def _shadowing(noun: str, catalog: str, name: str, namespace: str) -> str:
    """Return a query for functions or operators that would be called instead of others."""
    return (
        f"SELECT '{noun} ' || {name} FROM {catalog} AS found"
        f" WHERE NOT {_OF_EXTENSION.format(catalog=catalog)}"
        f" AND ({namespace} = 'polyglance'::regnamespace OR ({namespace} ="
        " (SELECT extnamespace FROM pg_extension WHERE extname = 'vector')"
        f" AND EXISTS (SELECT 1 FROM {catalog} AS own WHERE own.{name} = found.{name}"
        f" AND own.{namespace} = 'pg_catalog'::regnamespace)))"
    )


FOREIGN_OBJECTS = (
    " UNION ALL ".join(
        [
            "SELECT 'trigger ' || tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            f" WHERE {_OURS} AND NOT tgisinternal",
            "SELECT 'rule ' || rulename FROM pg_rewrite JOIN pg_class ON pg_class.oid = ev_class"
            f" WHERE {_OURS}",
            "SELECT 'policy ' || polname FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
            f" WHERE {_OURS}",
            f"SELECT 'relation ' || relname FROM pg_class WHERE {_OURS}"
            " AND relkind NOT IN ('r', 'i', 'S')",
            "SELECT 'table that inherits ' || relname FROM pg_inherits"
            f" JOIN pg_class ON pg_class.oid = inhparent WHERE {_OURS}",
            "SELECT 'constraint ' || conname FROM pg_constraint"
            f" JOIN pg_class ON pg_class.oid = conrelid WHERE {_OURS} AND contype = 'c'"
            f" AND pg_get_constraintdef(pg_constraint.oid) <> '{_KIND_CHECK}'",
            "SELECT 'computed column of ' || relname FROM pg_attrdef"
            f" JOIN pg_class ON pg_class.oid = adrelid WHERE {_OURS}"
            " AND pg_get_expr(adbin, adrelid) <> '0'",
            "SELECT 'computed index of ' || relname FROM pg_index"
            f" JOIN pg_class ON pg_class.oid = indrelid WHERE {_OURS}"
            " AND (indexprs IS NOT NULL OR indpred IS NOT NULL)",
            "SELECT 'type ' || typname FROM pg_attribute"
            " JOIN pg_class ON pg_class.oid = attrelid JOIN pg_type ON pg_type.oid = atttypid"
            f" WHERE {_OURS} AND typtype <> 'b'",
            _shadowing("function", "pg_proc", "proname", "pronamespace"),
            _shadowing("operator", "pg_operator", "oprname", "oprnamespace"),
        ]
    )
    + " LIMIT 1"
)
"""Returns the kind and the name of one such object, or nothing."""
