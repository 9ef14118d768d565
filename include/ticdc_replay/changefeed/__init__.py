"""A changefeed as its owner declared it: its sink-uri and TOML as TiCDC reads them, and where TiCDC sends rows.

``config.Changefeed`` is what the two mean for a reader, ``sink_uri`` and ``info`` read them, ``protocols`` says what is known of
a protocol. ``rules`` are the dispatchers, with ``table_filter`` and ``topic_expression`` as their syntax; ``partitions`` computes
the partition of a row. Nothing here opens a connection.
"""
