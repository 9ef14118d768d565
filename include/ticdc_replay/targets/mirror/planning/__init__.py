"""What a load needs of a mirror table: pure functions of the window, the ledger and what was found, without a connection.

``plan`` is the result of the window alone, from its rows (``columns``) and its DDL (``window_ddl``, ``fills``). ``form`` and
``differences`` hold it against the mirror: which steps bring the table there, or why it can't be followed.
"""
