"""Where changelogs are loaded: one target a file or folder, behind one contract.

``base`` is the contract, ``config`` what a pipeline says of a target, ``registry`` picks the class for a configuration,
``load`` loads one changelog into one target whatever runs the work (Spark, or the calling process). A target knows
nothing of engines: it hands picklable tasks to the ``Execute`` it is given.
"""
