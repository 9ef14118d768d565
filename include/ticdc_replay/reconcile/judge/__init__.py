"""The class of each object and reference, counts of them, alerts and the report."""
