"""The standard facets of OpenLineage that a dataset gets."""

import pytest

pytestmark = pytest.mark.airflow


def test_a_lake_table_has_its_snapshot_as_version_and_its_name_in_the_catalog_as_symlink() -> None:
    from ticdc_replay.airflow.lineage import operator_lineage
    from ticdc_replay.domain.dataset_names import DatasetName
    from ticdc_replay.lineage.datasets import Dataset, DeletionRun, Lineage, Rows

    table = Dataset(
        namespace="s3://lake",
        name="tables/shop/orders",
        other_names=(DatasetName("s3a://lake/tables", "shop.orders"),),
        version="8712",
        written=Rows(25),
    )
    run = DeletionRun(store="s", plan="p", execution="e", audit="a", counts={}, library_version="1")
    (output,) = operator_lineage(Lineage(run, (), (table,))).outputs
    assert output.facets["version"].datasetVersion == "8712"
    (symlink,) = output.facets["symlinks"].identifiers
    assert (symlink.namespace, symlink.name, symlink.type) == ("s3a://lake/tables", "shop.orders", "TABLE")
    assert output.outputFacets["outputStatistics"].rowCount == 25
