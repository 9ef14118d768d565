"""A location in a message can name an object of the configured store, and nothing else."""

import pytest

from ticdc_replay.large_messages.locations import object_name

NAME = "04504b9f-7ddc-41ea-bd96-c0e4d82b1770.json"


@pytest.mark.parametrize(
    "location",
    [
        f"s3://bucket/prefix/{NAME}",
        f"s3:/bucket/prefix/{NAME}",
        f"gcs://bucket/{NAME}",
        f"file:///data/claim/{NAME}",
        f"file:/data/claim/{NAME}",
        f"https://elsewhere.example/steal/{NAME}",
        f"s3://bucket/../../{NAME}",
        NAME,
    ],
)
def test_the_last_part_of_the_path_is_the_name(location: str) -> None:
    assert object_name(location) == NAME


@pytest.mark.parametrize(
    "location",
    [
        "", "s3://bucket/", f"s3://bucket/{NAME}/", f"s3://bucket/{NAME}?versionId=1", f"s3://bucket/{NAME}\n",
        "s3://bucket/../secret.json", f"s3://bucket/x{NAME}", f"s3://bucket\\{NAME}", f"s3://bucket/{NAME.upper()}",
        f"s3://bucket/{NAME[:-5]}.jso", "s3://bucket/%2e%2e%2fsecret.json", "s3://bucket/../" + "-" * 35 + "..json",
        f"s3://bucket/{NAME}?endpoint=http://host/{NAME}", f"s3://bucket/a#b/{NAME}",
    ],
)  # fmt: skip
def test_what_does_not_look_like_a_name_names_nothing(location: str) -> None:
    assert object_name(location) == ""
