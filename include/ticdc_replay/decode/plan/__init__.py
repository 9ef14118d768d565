"""Before a decode: the splits of a range, the table schemas in it, and the folder of the run."""
