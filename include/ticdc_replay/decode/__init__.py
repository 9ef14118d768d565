"""Decoding a pinned range: planning splits, one split from Kafka to files, surplus copies, the index and its report.

Everything here runs without an engine; ``spark`` only spreads the tasks.
"""
