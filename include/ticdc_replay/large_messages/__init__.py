"""Large messages: what TiCDC did to fit a row through Kafka, undone.

``compression`` decompresses one unit with a cap; ``locations`` finds the name of an object in an untrusted location;
``claim_check`` fetches many objects with bounded concurrency.
"""
