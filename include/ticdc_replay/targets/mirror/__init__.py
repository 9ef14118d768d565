"""What a mirror in any database does: one table per table of the upstream, with the last version of each row.

``load`` is the target: it plans each table (``planning``), refuses what it can't follow (``stops``), has workers stage rows
(``staging``, ``staged_rows``), and commits table by table (``commit``, ``emptying``) if no newer load has begun (``marks``,
``dropped_databases``). ``upkeep`` is what a person does.

What a kind of database brings are a ``section``, a ``dialect`` of names and types, a ``session`` with its ``ledger``, and the
function that stages. Nothing here knows one. A target of lake tables takes ``planning``, or no more than its rules.
"""
