"""Debezium, as JSON (``codec``) and as Avro (``avro``), which share ``plans``, ``types``, ``cells`` and ``values``.

``json`` reads any row, ``compiled`` that of a known form in less time. ``nulls`` finds values that may stand for NULL.
"""
