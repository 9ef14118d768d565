"""Stores behind obstore: ``store`` keeps objects, ``gcs`` and ``azure`` say how they are reached, ``arrow`` is for Parquet."""
