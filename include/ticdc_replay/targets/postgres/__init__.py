"""The mirror in PostgreSQL.

``mirror`` is the target; ``plan`` says what a table needs, ``mirror_table`` brings the target's table there; ``tasks``,
``stage`` and ``staged_rows`` are the workers' part; ``commit`` merges, ``ledger`` remembers. ``types`` is the type mapping.
"""
