"""The mirror in MySQL, TiDB and MariaDB: what is theirs of what the room ``mirror`` does.

``mirror`` is the target, ``section`` what a pipeline says of it; ``dialect`` and ``types`` are names and types, ``session``,
``tables`` and ``merge`` the statements, ``ledger``, ``begun`` and ``ledger_tables`` the ledger; ``server`` is what kind of
server answers, and ``settings`` how it is reached; ``staging``, ``stage``, ``bulk`` and ``row_text`` bring rows there.

DDL ends the open transaction here. So what a statement is about to change is written in the ledger before it, as in a
lake: a load that broke on the way finds it there, and does it again.
"""
