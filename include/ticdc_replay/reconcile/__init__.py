"""Reconciliation of a claim-check store: which objects a message refers to, which may go, which are missed.

Rules and file formats are pure; what runs on Spark is in ``spark``, what a person or a DAG calls in ``stages``.
"""
