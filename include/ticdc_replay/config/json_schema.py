"""The JSON Schemas of pipeline and store files, for editors: ``python -m ticdc_replay.config.json_schema FILE… [--check]``."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store

_MODELS: dict[str, tuple[str, type[BaseModel]]] = {
    "pipeline.schema.json": ("Pipeline of ticdc-replay", Pipeline),
    "store.schema.json": ("Claim-check store of ticdc-replay", Store),
}


def json_schema(file_name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that the types of ``config`` give for ``pipeline.schema.json`` or ``store.schema.json``."""
    title, model = _MODELS[file_name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **model.model_json_schema(by_alias=True),
    }


def rendered(file_name: str) -> str:
    """The schema as it is committed."""
    return json.dumps(json_schema(file_name), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schemas; with ``--check`` the exit code shows whether the files are current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help=f"the last part of the path must be {' or '.join(_MODELS)}")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if unknown := [file for file in arguments.files if file.name not in _MODELS]:
        parser.error(f"{unknown[0]} is not called {' or '.join(_MODELS)}")
    stale = 0
    for file in arguments.files:
        if not arguments.check:
            file.write_text(rendered(file.name), encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != rendered(file.name):
            sys.stderr.write(f"{file} is not current; write it again: python -m {__spec__.name} {file}\n")
            stale = 1
    return stale


if __name__ == "__main__":
    raise SystemExit(main())
