"""Field types of the pipeline file that say what they allow."""

import re
from typing import Annotated
from zoneinfo import ZoneInfo

from croniter import croniter
from pydantic import AfterValidator, AwareDatetime, Field

from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tso import MAX_TSO, from_ms
from ticdc_replay.storage.names import tidy_folder

_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
_OLDEST_TSO = from_ms(1_420_070_400_000)
"""2015-01-01: before TiDB. A smaller number is a time in another unit, and would pass for a very early start."""
_URI = re.compile(r"(s3://[^/?#]+|gs://[^/?#]+|az://[^/?#@]+|abfss?://[^/?#@]+@[^/?#@]+|file:///)[^?#]*")
CONNECTION_TYPES = {"s3": "aws", "gs": "google_cloud_platform", "az": "wasb", "abfs": "wasb", "abfss": "wasb"}
"""The type of the Airflow connection of a store, by the scheme of its URI."""


def _cron(text: str) -> str:
    if text not in _PRESETS and (len(text.split()) != 5 or not croniter.is_valid(text)):
        raise ValueError(f"must be a cron expression of five fields, or one of {', '.join(_PRESETS)}")
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("must be an IANA time zone such as UTC or Asia/Shanghai") from None
    return name


def _table_pattern(text: str) -> str:
    schema, dot, table = text.partition(".")
    if not (schema and dot and table):
        raise ValueError("must be of the form schema.table, with * and ? as wildcards, such as shop.* or shop.orders")
    return text


def _folder(uri: str) -> str:
    if not _URI.fullmatch(uri):
        raise ValueError(
            "must look like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, "
            "abfss://container@account.dfs.core.windows.net/prefix or file:///absolute/folder"
        )
    return tidy_folder(uri)


def _tso(number: int) -> int:
    if not _OLDEST_TSO <= number <= MAX_TSO:
        raise ValueError("must be a TSO, such as 464625598464000000; milliseconds or seconds are not")
    return number


def _place(text: str) -> str:
    EventPlace.parse(text)
    return text


ConnectionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]{1,200}$")]
"""The id of an Airflow connection: never an address."""
Cron = Annotated[str, AfterValidator(_cron)]
FolderUri = Annotated[str, AfterValidator(_folder)]
Moment = AwareDatetime
Place = Annotated[str, AfterValidator(_place)]
Tso = Annotated[int, AfterValidator(_tso)]
TablePattern = Annotated[str, AfterValidator(_table_pattern)]
Zone = Annotated[str, AfterValidator(_zone)]


def check_place(key: str, uri: str, connection_key: str, connection: str | None) -> None:
    """A local folder takes no connection; an object store's is named, so that nobody's own credentials are used."""
    if uri.startswith("file:") and connection is not None:
        raise ValueError(f"{connection_key}: remove it; {key} is a local folder, which takes no connection")
    if not uri.startswith("file:") and connection is None:
        kind = CONNECTION_TYPES[uri.partition(":")[0]]
        raise ValueError(f"{connection_key}: missing; name the Airflow connection (type {kind}) for {key}")
