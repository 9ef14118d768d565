"""From a changelog to its targets: the check before, the load, the report and the coverage after."""
