"""Lake tables: what the formats Iceberg and Delta share. Spark SQL of the load's driver changes them.

A mirror is one of the room ``mirror``: ``mirror`` is the target, ``session`` what its transactions become where there
are none, ``merge`` the statements, ``stage`` the workers' part. ``ledger`` holds what a table can't. ``history`` keeps
every version. ``table_format`` is what a format brings.

A lake has no transaction over a table and its ledger, so the order of writes makes a repeat harmless:

1. Statements that change the table's form, or empty it. Each may be repeated.
2. The ledger's state of the table, with the deletes of the window. It may say more than the table has.
3. One MERGE. Its commit names the run, so that a load whose outcome is unknown finds it.
4. The ledger's entry of the window.
"""
