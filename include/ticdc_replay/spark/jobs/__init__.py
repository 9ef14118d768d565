"""The entry scripts that spark-submit runs, one a kind of job. Arguments: the URI of the job spec, and the attempt's name."""
