"""Entry point of the image: puts mounted secrets into the private files that programs read, then becomes the command.

Secrets come as files below /run/secrets, and only to the services that need them. What is written here goes to a tmpfs that only
this user can enter: never to the environment, a command line or a layer of the image.
"""

import json
import os
import sys
from pathlib import Path
from urllib.parse import quote

SECRETS = Path("/run/secrets")
PRIVATE = Path("/run/ticdc-replay")
SPARK_DEFAULTS = Path(__file__).with_name("spark-defaults.conf")
AIRFLOW_DATABASE = "postgresql+psycopg2://airflow:{password}@metadata-db:5432/airflow"


def main() -> None:
    os.umask(0o077)
    if secret := read("spark_secret"):
        folder = PRIVATE / "spark"
        folder.mkdir(exist_ok=True)
        text = f"{SPARK_DEFAULTS.read_text()}spark.authenticate.secret {secret}\n"
        (folder / "spark-defaults.conf").write_text(text)
    if password := read("airflow_db_password"):
        address = AIRFLOW_DATABASE.format(password=quote(password, safe=""))
        (PRIVATE / "airflow-database").write_text(address)
    if password := read("airflow_admin_password"):
        (PRIVATE / "airflow-passwords.json").write_text(json.dumps({"admin": password}))
    os.execvp(sys.argv[1], sys.argv[1:])


def read(name: str) -> str | None:
    """The secret *name*, None where this service does not get it."""
    path = SECRETS / name
    return path.read_text().strip() if path.exists() else None


if __name__ == "__main__":
    main()
