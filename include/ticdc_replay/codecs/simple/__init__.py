"""Simple, as JSON and as Avro: ``codec`` reads both, ``json`` and ``avro`` the bytes, ``messages`` what is in them.

``json_rows`` and ``json_compiled`` read the JSON of a known form in less time. ``schema`` and ``values`` are columns and cells.
"""
