"""Where changelogs are loaded: one kind of target a folder, behind one contract.

``config.target_section`` is what a kind is and what a pipeline says of one target, ``base`` the contract of a load. ``load``
loads one changelog into one target whatever runs the work (Spark, or the calling process). A target knows nothing of engines: it
hands picklable tasks to the ``Execute`` it is given.
"""
