"""What happens to a changefeed's topic and its claim-check store in the months after: all of it at once.

Kafka expires its oldest messages, somebody removes an object and replaces another, a stranger leaves files, an upload breaks off,
and TiCDC has just written an object whose message is still to come.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from demo.sample import contents
from demo.sample.contents import SampleMessage

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ERRORS_ONLY = {"log_level": 3}
REQUEST_SECONDS = 300.0
FOREIGN = ("README.txt", "old/backup.tar", "..%2Fetc%2Fpasswd.json")
EMPTY = "7d1c2a94-0b53-4a58-9a4e-51d1f6d3c2b0.json"
YOUNG = "c9b1f0e6-4a7b-4f06-8d07-2c6e9f0a7d31.json"


class Aged(NamedTuple):
    """What was done to which object, by its name: its message expired, it was removed, it was replaced."""

    expired: str
    removed: str
    replaced: str


class Location(NamedTuple):
    """An object, and the message that refers to it."""

    name: str
    message: SampleMessage


def leave_foreign_objects(s3: "S3Client", bucket: str, prefix: str) -> None:
    """Put what is not TiCDC's (``FOREIGN``), and what an upload that broke off left (``EMPTY``)."""
    for name in FOREIGN:
        s3.put_object(Bucket=bucket, Key=prefix + name, Body=b"not a message")
    s3.put_object(Bucket=bucket, Key=prefix + EMPTY, Body=b"")


def age(bootstrap: str, topic: str, s3: "S3Client", bucket: str, prefix: str) -> Aged:
    """Let Kafka expire the messages up to the oldest claim check, remove and replace objects of the youngest two, and put one
    (``YOUNG``) that no message refers to yet."""
    referred = sorted(references(), key=lambda found: found.message.timestamp_ms)
    oldest, (removed, replaced) = referred[0], (found.name for found in referred[-2:])
    _expire(bootstrap, topic, oldest.message)
    s3.delete_object(Bucket=bucket, Key=prefix + removed)
    for name in (replaced, YOUNG):
        s3.put_object(Bucket=bucket, Key=prefix + name, Body=b'{"key": "", "value": ""}')
    return Aged(oldest.name, removed, replaced)


def references() -> Iterator[Location]:
    """The messages of the sample that refer to objects. Open Protocol has an object's URI in the message's key."""
    names = {each.name.encode(): each.name for each in contents.objects()}
    for message in contents.messages():
        for encoded, name in names.items():
            if encoded in message.key:
                yield Location(name, message)


def _expire(bootstrap: str, topic: str, last: SampleMessage) -> None:
    """Remove *last* and what is before it in its partition, as retention would."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **ERRORS_ONLY})
    partition = TopicPartition(topic, last.partition, last.offset + 1)
    admin.delete_records([partition])[partition].result(REQUEST_SECONDS)
