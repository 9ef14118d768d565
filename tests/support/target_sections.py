"""A section of every kind of target that the library has, in each of its modes."""

_LAKE = {"ledger": "file:///ledger", "catalog": "lake"}
SECTIONS: list[dict[str, object]] = [
    {"type": "postgres", "connection": "warehouse"},
    {"type": "mysql", "connection": "warehouse"},
    {"type": "parquet", "uri": "file:///files"},
    *({"type": kind, "mode": mode, **_LAKE} for kind in ("iceberg", "delta") for mode in ("mirror", "history", "scd2")),
]
