"""A changelog: the row versions of a window as Parquet.

``cells`` are its values, ``files`` its files, ``copies`` what repeats in it.
"""
