"""Pinning a window: from a TSO range to offset ranges that hold it completely, with the evidence.

``pin.pin_window`` makes a ``manifest.Manifest`` from a ``request.PinRequest``. ``resolved`` searches resolved-ts, ``watermark``
reports how far partitions have come, ``start`` finds the first offset, ``inventory`` lists the claim-check store. ``topics``
checks a manifest against Kafka before it is read, ``proof`` at any later time.
"""
