"""What brokers and librdkafka answer, as errors that say whether a repeat may help."""

import pytest
from confluent_kafka import KafkaError

from ticdc_replay.domain.errors import AuthenticationError, ExpiredRangeError, TopicChangedError, TransientError
from ticdc_replay.kafka.failures import translate


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
    ],
)
def test_a_partition_between_two_leaders_is_tried_again(code: int) -> None:
    assert isinstance(translate(KafkaError(code), "looking up offsets"), TransientError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicChangedError),
        (KafkaError.OFFSET_OUT_OF_RANGE, ExpiredRangeError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthenticationError),
    ],
)
def test_what_a_repeat_can_not_mend_is_permanent(code: int, kind: type[Exception]) -> None:
    assert type(translate(KafkaError(code), "looking up offsets")) is kind
