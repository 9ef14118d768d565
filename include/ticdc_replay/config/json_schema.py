"""The JSON Schema of pipeline files, for editors: ``python -m ticdc_replay.config.json_schema FILE [--check]``."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ticdc_replay.config.pipeline import Pipeline


def pipeline_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that the types of ``config.pipeline`` give."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pipeline of ticdc-replay",
        **Pipeline.model_json_schema(by_alias=True),
    }


def rendered() -> str:
    """The schema as it is committed."""
    return json.dumps(pipeline_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema, or with ``--check`` tell by the exit code whether the file is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        arguments.file.write_text(rendered(), encoding="utf-8")
        return 0
    if arguments.file.is_file() and arguments.file.read_text(encoding="utf-8") == rendered():
        return 0
    sys.stderr.write(f"{arguments.file} is not current; write it anew: python -m {__spec__.name} {arguments.file}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
