"""The mirror in PostgreSQL: what is PostgreSQL's own of what the room ``mirror`` does.

``mirror`` is the target, ``section`` what a pipeline says of it; ``dialect`` and ``types`` are names and types, ``session``,
``tables`` and ``merge`` the statements, ``ledger``, ``begun`` and ``ledger_tables`` the ledger; ``staging``, ``stage``,
``wide_rows`` and ``indexes`` bring rows there by COPY, and find those that PostgreSQL has no room for.
"""
