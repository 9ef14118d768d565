"""Publishing puts the sample where a replay finds it."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from demo.sample import contents
from demo.sample.publish import publish
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration


def test_messages_get_their_partitions_offsets_and_times_and_objects_their_names(kafka, s3_client, make_bucket):
    bucket = make_bucket()
    published = publish(kafka.bootstrap, f"changes-{bucket}", s3_client, bucket, "claim-check/")

    names = {each.name for each in contents.objects()}
    listed = s3_client.list_objects_v2(Bucket=bucket, Prefix="claim-check/")["Contents"]
    assert {entry["Key"] for entry in listed} == {f"claim-check/{name}" for name in names}
    assert published.objects == len(names)

    sent = {(each.partition, each.offset): each for each in contents.messages()}
    assert published.messages == len(sent)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test", "auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition(published.topic, partition, 0) for partition in range(3)])
        read = 0
        while read < len(sent):
            # As many as there are: consume waits for that number, or its whole timeout.
            for message in consumer.consume(min(500, len(sent) - read), timeout=PATIENCE_S):
                assert message.error() is None
                wanted = sent[message.partition(), message.offset()]
                assert (message.key(), message.value(), message.timestamp()[1]) == (
                    wanted.key,
                    wanted.value,
                    wanted.timestamp_ms,
                )
                read += 1
    finally:
        consumer.close()
