"""Tasks on Spark's executors, the join of a reconciliation, and the entry scripts (``jobs``). Only this room knows Spark."""
