"""One split: its messages are read, decoded, made whole from claim-check objects or the source, and written."""
