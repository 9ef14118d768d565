"""Exact batch replay of TiCDC changefeeds.

Rooms, from the inside out: ``domain`` (values and errors), ``storage``, ``config``, ``schemas``, ``large_messages``,
``codecs``, ``kafka``, ``snapshot``, ``changelog``, ``decode``, ``targets``, ``state``, ``lineage``; and three outer rooms that
nothing else may import: ``spark``, ``airflow``, ``cli``.
"""

__version__ = "0.1.0"
