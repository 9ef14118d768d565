"""One module per schema version, in order of their numbers. A released one never changes."""
