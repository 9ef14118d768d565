"""Comparing one table in two databases: canonical text of cells, digests of key ranges inside both engines, and the search
for the rows that differ.

Nothing here knows pipelines or ledgers. ``side`` is the contract of a table in one engine, ``mysql`` its form for MySQL,
TiDB and MariaDB.
"""
