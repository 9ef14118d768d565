"""What a load needs of a mirror table: pure functions of the window, the ledger and the table, without a connection.

``table_plan`` follows from the window alone, its rows (``columns``) and its DDL (``window_ddl``, ``fills``). ``form``
and ``differences`` compare it with the mirror: the steps that bring the table there, or why it can't be followed.
"""
