"""Protocols: how bytes of one Kafka message become events. The files of a protocol are named after it.

* ``<protocol>_traits``: what the rest of the library knows of it (``config.protocols``). Configuration imports this alone.
* ``<protocol>``: its codec, behind ``base.Codec``. A codec reads bytes and nothing else. ``registry.codec_for`` finds it.
* ``<protocol>_native``: where there is one, its native reader (``native.NativeReader``).
* ``open``: Open Protocol. Its helpers: ``open_framing`` (frames), ``open_rows`` (row events), ``open_members`` (complete reading
  of a row's JSON), ``open_compiled`` (fast reading of a known form), ``open_values`` (type codes and cells), ``go_quote``.
"""
