"""Large messages: what TiCDC did to fit a row through Kafka, undone.

``compression`` decompresses one unit with a cap; ``locations`` tells an object's name from an untrusted location;
``claim_check`` fetches many objects with bounded concurrency.
"""
