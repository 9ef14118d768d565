"""Publishes the sample changefeed once; does nothing when its topic is there already."""

import sys

from common import KAFKA, SAMPLE_BUCKET, s3_client
from confluent_kafka.admin import AdminClient

from demo.sample.publish import publish

TOPIC = "shop-changes"


def main() -> None:
    topics = AdminClient({"bootstrap.servers": KAFKA}).list_topics(timeout=30).topics
    if TOPIC in topics:
        sys.stdout.write(f"topic {TOPIC} exists: the sample was published before\n")
        return
    published = publish(KAFKA, TOPIC, s3_client(), SAMPLE_BUCKET, "claim-check/")
    sys.stdout.write(f"{published.messages} messages in topic {published.topic}, {published.objects} objects\n")


if __name__ == "__main__":
    main()
