"""Reconciliation of a claim-check store: ``look`` at what is there, ``judge`` each object and reference, ``delete`` what may go.

Rules and file formats are pure; what runs on Spark is in ``spark``, what a person or a DAG calls in ``store_stages``.
"""
