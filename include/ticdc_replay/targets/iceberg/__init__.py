"""Apache Iceberg: ``section`` is what a pipeline says of it, ``table_format`` its statements and commits."""
