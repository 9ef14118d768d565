"""Decoding a pinned range.

``plan`` divides it, ``read`` brings one split from Kafka to files, ``complete`` drops repeated copies and writes the index.
Everything here runs without an engine; ``spark`` only spreads the tasks.
"""
