"""One function per stage of a replay, which the Airflow operators and the command line both call.

A stage takes a ``context.ReplayContext``, does its work through the inner rooms and returns a value that fits on a screen.
"""
