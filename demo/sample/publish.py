"""Brings the sample changefeed into Kafka and S3, as TiCDC left it there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.sample import contents

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

UPLOADS_AT_A_TIME = 8
ERRORS_ONLY = {"log_level": 3}
REQUEST_SECONDS = 300.0


class Published(NamedTuple):
    """What was brought where."""

    topic: str
    messages: int
    objects: int


def publish(bootstrap: str, topic: str, s3: "S3Client", bucket: str, prefix: str) -> Published:
    """Create *topic* and fill it; put the objects into *bucket* below *prefix* (which ends with a slash or is empty).

    Objects come first, because TiCDC writes them before it sends the message that refers to them. Every message goes to its
    partition, gets its time and, the topic being new, its offset. Raises KafkaException when the topic exists.
    """
    objects = contents.objects()
    with ThreadPoolExecutor(UPLOADS_AT_A_TIME) as pool:
        for upload in [
            pool.submit(s3.put_object, Bucket=bucket, Key=prefix + each.name, Body=each.path.read_bytes())
            for each in objects
        ]:
            upload.result()
    _create(bootstrap, topic)
    return Published(topic, _produce(bootstrap, topic), len(objects))


def _create(bootstrap: str, topic: str) -> None:
    partitions = contents.meta()["partitions"]
    # The records are older than any usual retention.
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    admin = AdminClient({"bootstrap.servers": bootstrap, **ERRORS_ONLY})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(REQUEST_SECONDS)


def _produce(bootstrap: str, topic: str) -> int:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **ERRORS_ONLY})
    misplaced: list[str] = []

    def placed_at(offset: int) -> Callable[[KafkaError | None, Message], None]:
        def check(error: KafkaError | None, message: Message) -> None:
            if error is not None or message.offset() != offset:
                misplaced.append(f"[{message.partition()}]@{offset}: {error or f'got offset {message.offset()}'}")

        return check

    sent = 0
    for each in contents.messages():
        producer.produce(
            topic,
            partition=each.partition,
            key=each.key,
            value=each.value,
            timestamp=each.timestamp_ms,
            on_delivery=placed_at(each.offset),
        )
        producer.poll(0)
        sent += 1
    left = producer.flush(REQUEST_SECONDS)
    if misplaced or left:
        raise RuntimeError(f"{left} messages not delivered, {len(misplaced)} misplaced: {'; '.join(misplaced[:3])}")
    return sent
