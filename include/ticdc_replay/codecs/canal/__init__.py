"""Canal-JSON: ``codec`` reads messages, ``rows`` row events, ``types`` and ``shapes`` what columns are.

``members`` reads any JSON of a row, ``compiled`` that of a known form in less time.
"""
