"""DDL: ``statements`` and the parsers make a value of its text, ``reader`` and ``alter`` say what it does to known tables."""
