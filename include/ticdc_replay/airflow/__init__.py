"""Airflow around the engine: DAGs, operators, the trigger, connections and lineage. The only room that imports airflow.

``factory.build_dag`` makes the DAG of one pipeline file, ``bundle.PipelineBundle`` shows a folder of them to Airflow. The
operators are thin: each opens a ``stages.context.ReplayContext`` and calls one stage. What parsing a DAG needs is imported
at the top of a module, what running a task needs inside ``execute``: parsing stays fast and knows no pyspark.
"""
