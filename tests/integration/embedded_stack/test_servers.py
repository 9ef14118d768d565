"""The embedded servers do what the tests and the demo rely on."""

import os

import boto3
import psycopg
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.integration


def test_kafka_keeps_the_time_that_a_producer_gave(kafka, make_topic):
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for at in (1_000, 1_772_000_000_000, 4_000_000_000_000):
        producer.produce(topic, b"value", partition=1, timestamp=at)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test", "auto.offset.reset": "error"})
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 1, 2_000)], timeout=PATIENCE_S)
        assert found.offset == 1
        assert consumer.get_watermark_offsets(TopicPartition(topic, 1), timeout=PATIENCE_S) == (0, 3)
    finally:
        consumer.close()


def test_kafka_asks_for_the_right_password_on_its_secured_listener(kafka):
    def client(password):
        return AdminClient(
            {
                "bootstrap.servers": kafka.sasl_bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": kafka.sasl_mechanism,
                "sasl.username": kafka.sasl_username,
                "sasl.password": password,
                "log_level": 0,
            }
        )

    assert client(kafka.sasl_password).list_topics(timeout=PATIENCE_S).brokers
    with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT"):
        client("wrong").list_topics(timeout=3)


def test_kafka_lets_retention_expire_segments_within_seconds(kafka, make_topic):
    topic = make_topic(config={"retention.ms": "1000", "segment.bytes": "1048576", "file.delete.delay.ms": "0"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    for _ in range(3):
        producer.produce(topic, os.urandom(600_000), partition=0, timestamp=1_000)
        producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
    try:
        partition = TopicPartition(topic, 0)
        wait_for("a segment to expire", lambda: consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)[0] > 0)
    finally:
        consumer.close()


def test_s3_refuses_to_overwrite_when_asked_to_create(s3_client, make_bucket):
    bucket = make_bucket()
    s3_client.put_object(Bucket=bucket, Key="a/b", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3_client.put_object(Bucket=bucket, Key="a/b", Body=b"2", IfNoneMatch="*")
    assert s3_client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"1"


def test_versitygw_checks_signatures_and_keeps_a_given_age(versitygw):
    def client(secret):
        return boto3.client(
            "s3",
            endpoint_url=versitygw.endpoint,
            aws_access_key_id=versitygw.access_key,
            aws_secret_access_key=secret,
            region_name=versitygw.region,
        )

    good = client(versitygw.secret_key)
    good.create_bucket(Bucket="aged")
    good.put_object(Bucket="aged", Key="x.json", Body=b"{}")
    versitygw.set_last_modified("aged", "x.json", 1_000_000.0)
    assert good.head_object(Bucket="aged", Key="x.json")["LastModified"].timestamp() == 1_000_000.0
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client("wrong").list_objects_v2(Bucket="aged")


def test_postgres_asks_for_the_password(postgres, make_database):
    dsn = make_database()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(dsn.replace(postgres.password, "wrong"))
