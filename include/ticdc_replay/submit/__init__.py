"""How a Spark job is run: the contract, its implementations, and what passes between submitter and driver.

``submitter`` is the contract, ``spark_submit`` its first implementation. ``outcome`` is what a driver leaves at its end.
``properties``, ``environment`` and ``private_file`` are what a driver gets. Nothing here knows Spark's or Airflow's packages.
"""
