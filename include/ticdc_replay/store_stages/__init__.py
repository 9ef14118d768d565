"""One function per step of the care for a claim-check store: reconcile it, plan a deletion, execute it, undo it.

A step takes a ``context.StoreContext``. Operators and the command line both call it.
"""
