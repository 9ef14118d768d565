"""A kind of target that is no part of the library: the last version of each row of a window, as lines of JSON.

It is what CONTRIBUTING.md's recipe for a new target makes, step by step.
"""
