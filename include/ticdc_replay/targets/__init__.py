"""Where changelogs are loaded: one folder for each kind of target, one contract for all.

``config.target_section`` describes a kind of target, ``base`` is the contract of a load, and ``load`` loads one
changelog into one target. A target does not know which engine runs its work (Spark or this process): it passes
picklable tasks to ``Execute``.
"""
