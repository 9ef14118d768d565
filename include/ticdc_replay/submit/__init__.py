"""How a job is run: the contract, its implementations, and what passes between submitter and driver.

``submitter`` is the contract. ``driver_process`` implements it for drivers that are processes of this machine, whose command
``commands`` has: spark-submit, a client of Spark Connect, or no Spark. ``cluster`` does so for drivers that are applications of
a cluster, which ``clusters`` chooses. ``outcome`` is what a driver leaves at its end. ``properties``, ``environment``,
``private_file`` and ``envelope`` are what a driver gets. Nothing here knows Spark's or Airflow's packages.
"""
