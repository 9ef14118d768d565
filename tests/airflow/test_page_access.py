"""Every page asks who looks: each route of the plugin's application is tried, also one that is added later."""

import pytest

from ticdc_replay.airflow.pages import URL_PREFIX
from ticdc_replay.airflow.pages.site import app

pytestmark = pytest.mark.airflow

DAGS = ("ticdc_replay_live", "ticdc_replay_store_claims", "ticdc_replay_store_claims_deletion", "no_such_dag")


def requests():
    for route in app.routes:
        for dag_id in DAGS:
            path = route.path.replace("{dag_id}", dag_id)
            assert "{" not in path, f"give {route.path} values to be tried with"
            for method in sorted(route.methods):
                yield method, f"{URL_PREFIX}{path}"


@pytest.fixture(autouse=True)
def pages(tmp_path, pipelines, stores):
    """A pipeline and a store, so that every page has something to show."""
    pipelines.add("live", {"artifacts": tmp_path.as_uri()})
    stores.add("claims", {"artifacts": tmp_path.as_uri()})


def statuses(client):
    found = {}
    for method, path in requests():
        found[method, path] = client.request(method, path, follow_redirects=False).status_code
        client.parses = False  # once is enough
    return found


def test_there_are_routes_to_try():
    assert len({path for _, path in requests()}) >= 2 * len(DAGS)


def test_nobody_sees_a_page_without_signing_in(client):
    assert set(statuses(client).values()) == {401}


def test_a_user_without_the_right_sees_no_page(sign_in):
    # Airflow's simple auth manager: a user without a role may read no DAG.
    assert set(statuses(sign_in("nobody", None)).values()) == {403}


def test_a_user_with_the_right_sees_the_pages(signed_in):
    found = statuses(signed_in)
    assert found["GET", f"{URL_PREFIX}/coverage/ticdc_replay_live"] == 200
    assert found["GET", f"{URL_PREFIX}/store/ticdc_replay_store_claims"] == 200
    assert not set(found.values()) & {401, 403}
