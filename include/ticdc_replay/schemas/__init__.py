"""Table definitions: from DDL, over time, and as the schema of a row.

* ``tokens``, ``literals``, ``statements`` and the ``…parser`` modules: a DDL text as a value
* ``definition``, ``alter``, ``ddl``: what a statement does to the known tables
* ``history.SchemaHistory``: which definition holds at a commitTs
* ``resolve.SchemaResolver``: the schema a row is typed with, from the history and the wire
* ``changes``: what a DDL means for a target

Nothing here reads a file or the network; a text that is not understood makes a table unknown, never an error.
"""
