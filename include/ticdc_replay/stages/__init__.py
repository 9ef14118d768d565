"""One function per stage of a replay, called by Airflow operators and the command line. A stage takes a
``context.ReplayContext``, works through the inner rooms, and returns a value that fits on a screen."""
