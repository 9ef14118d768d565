"""Open Protocol: ``codec`` reads messages, ``framing`` their frames, ``rows`` row events.

``members`` reads any JSON of a row, ``compiled`` that of a known form in less time, ``values`` type codes and cells.
"""
