"""Protocols: how bytes of one Kafka message become events. Each protocol is a folder; what several need lies here.

* ``traits``: what the rest of the library knows of it (``changefeed.protocols``). Configuration imports this alone.
* ``codec``: its codec, behind ``base.Codec``. A codec reads bytes and nothing else. ``registry.codec_for`` finds it.
* ``errors.MessageError``: what it raises for a message that it can't understand.
* ``native``: where there is one, its native reader (``native.NativeReader``).
"""
