"""What a mirror in any database does: one table per table of the upstream, with the last version of each row.

``load`` is the target. It plans each table (``planning``), refuses what it can't follow (``stops``), lets workers stage
rows (``staging``), and commits table by table (``commit``, ``emptying``) unless a newer load has begun (``marks``,
``dropped_databases``). ``upkeep`` is what people do between loads.

A kind of database adds a ``section``, a ``dialect`` of names and types, a ``session`` with its ``ledger``, and a
function that stages. Nothing here knows one of them. A target of lake tables uses ``planning``, or only its rules.
"""
