"""What the driver of a job does, whatever runs its tasks.

``decode``, ``load``, ``scan``, ``maintain``, ``mirror`` and ``seed`` each do the job of one kind; ``runner`` is the contract of
what runs their tasks, ``local`` runs them in processes of this machine. ``main`` is what every driver's process begins with.
Nothing here knows Spark.
"""
