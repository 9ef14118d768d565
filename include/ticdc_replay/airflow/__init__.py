"""Airflow around the engine: DAGs, operators, pages, the trigger, connections and lineage. Only this part imports airflow.

``dags.build_dags`` makes all DAGs of a folder of pipeline files and one of store files. The
operators are thin: each opens a ``stages.context.ReplayContext`` and calls one stage. What parsing a DAG needs is imported
at the top of a module, what running a task needs inside ``execute``: parsing stays fast and knows no pyspark.
"""
