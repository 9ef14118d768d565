"""What a history does wherever it is kept: every row version once, in slices of windows. ``load`` decides and gives the order of
writes, ``table`` and ``ledger`` are the contracts of what keeps one, ``rows`` and ``columns`` need no connection. In a
database ``database``, ``staging`` and ``stager`` bring the rows.

Nothing here knows one database, or a lake.
"""
