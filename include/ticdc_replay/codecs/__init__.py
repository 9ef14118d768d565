"""Codecs: bytes of one Kafka message in, events out. One protocol a file, its helpers named after it, behind ``base.Codec``.

A codec reads bytes and nothing else. ``registry.codec_for`` finds the one for a changefeed.

* ``open``: Open Protocol. Its helpers: ``open_framing`` (frames), ``open_rows`` (row events), ``open_members`` (complete reading
  of a row's JSON), ``open_compiled`` (fast reading of a known form), ``open_values`` (type codes and cells), ``go_quote``.
"""
