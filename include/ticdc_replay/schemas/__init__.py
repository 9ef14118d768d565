"""Table definitions: ``ddl`` reads DDL, this room keeps them over time.

* ``history.SchemaHistory``: which definition holds at a commitTs
* ``resolve.SchemaResolver``: the schema a row is typed with, from the history and the wire
* ``changes``: what a DDL means for a target

Nothing here reads a file or the network; a text that is not understood makes a table unknown, never an error.
"""
