"""Lineage as plain values: which data a run read and wrote, named as OpenLineage names datasets.

``datasets`` has the values and the naming rules, ``stages`` makes them from manifests, changelogs and load reports. Nothing
here knows how lineage is sent; ``airflow.lineage`` turns these values into OpenLineage events.
"""
