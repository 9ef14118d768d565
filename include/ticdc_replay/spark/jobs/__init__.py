"""The scripts of drivers whose tasks run in Spark, one a kind of job. Arguments: the URI of the job spec, the attempt's name."""
