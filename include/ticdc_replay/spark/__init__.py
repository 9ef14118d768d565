"""The drivers of Spark jobs and their entry scripts (``jobs``). Only this room knows Spark: it spreads tasks over executors."""
