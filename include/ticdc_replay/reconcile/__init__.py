"""Reconciliation of a claim-check store: ``look`` at what is there, ``judge`` each object and reference, ``delete`` what may go.

Rules and file formats are pure; ``spark`` runs the join, and people and DAGs call ``store_stages``.
"""
