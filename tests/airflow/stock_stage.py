"""The sample changefeed, and a stock Airflow: the wheel in an environment of its own, a DAG file of three lines, no settings.

Beside the wheel is a package with a page of its own."""

import json
import subprocess

from tests.airflow.stage import Stage
from tests.support.packages import ACME_RUNS, install
from tests.support.waiting import PATIENCE_S
from tests.support.wheels import environment_with_wheel

DAG_FILE = """\
from ticdc_replay.airflow.dags import build_dags

globals().update(build_dags({pipelines!r}))
"""
PAGE = """\
import json, sys
from airflow.api_fastapi.app import create_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

with TestClient(create_app(apps="core")) as client:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="somebody", role="viewer"))
    page = client.get(sys.argv[1], headers={"Authorization": f"Bearer {token}"})
print(json.dumps([page.status_code, page.text]))
"""


class StockStage(Stage):
    """What is set of Airflow's own settings: the home, no examples, where lineage goes, and the secret that signs log-ins."""

    def __init__(self, folder, *servers):
        super().__init__(folder, *servers)
        self.programs = environment_with_wheel(folder, "airflow", "spark")
        (packages,) = (folder / "environment" / "lib").glob("python*/site-packages")
        install(ACME_RUNS, packages)
        self.home = folder / "airflow"
        (self.home / "dags").mkdir(parents=True)
        (self.home / "dags" / "replay.py").write_text(DAG_FILE.format(pipelines=str(self.pipeline_file.parent)))
        self._checked("airflow", "db", "migrate")

    @property
    def environment(self):
        ours = ("AIRFLOW", "TICDC_REPLAY_", "PYTHONPATH", "VIRTUAL_ENV")
        stock = {name: value for name, value in super().environment.items() if not name.startswith(ours)}
        return {
            **stock,
            **self.connections,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": self.transport,
            "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of these tests, long enough for SHA-512 to be content with",
        }

    def page(self, path):
        """Status and text of a page of the API server, for a viewer who has signed in."""
        return json.loads(self._checked("python", "-c", PAGE, path).splitlines()[-1])

    def _checked(self, program, *arguments):
        done = subprocess.run(
            [self.programs / program, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
