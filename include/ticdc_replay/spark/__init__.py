"""The drivers of the jobs in ``spark_jobs``: they spread the library's tasks over executors. Only this room knows Spark."""
