"""Ids that don't name one topic are refused where they enter."""

import base64

import pytest
from confluent_kafka import Uuid
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.topics import TopicIdentity, is_topic_id
from ticdc_replay.kafka.topic_ids import TopicIds

REAL = Uuid(0x1234_5678_9ABC_DEF0, -5)


@pytest.mark.parametrize(
    "answer",
    [Uuid(0, 0), Uuid(0, 1), None, "", "None", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAA", "shop-changes", "é" * 22],
    ids=repr,
)  # fmt: skip
def test_an_id_that_names_no_topic_is_refused(answer: object) -> None:
    with pytest.raises(PermanentError, match=r"broker:9092 gives topic shop no usable id.*KIP-516"):
        TopicIds("broker:9092").accept("shop", answer)


def test_an_id_that_another_topic_has_is_refused() -> None:
    ids = TopicIds("broker:9092")
    assert ids.accept("one", REAL) == ids.accept("one", REAL)
    with pytest.raises(PermanentError, match="topics one and two the same id"):
        ids.accept("two", REAL)


@given(st.integers(2, (1 << 128) - 1))
def test_every_other_id_is_taken_in_the_alphabet_for_urls(number: int) -> None:
    content = number.to_bytes(16, "big")
    plain, for_urls = (encode(content).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode))
    assert TopicIds("broker").accept("shop", plain) == for_urls
    assert is_topic_id(for_urls)


@pytest.mark.parametrize(
    ("cluster", "name", "topic_id"), [("", "t", str(REAL)), ("c", "", str(REAL)), ("c", "t", str(Uuid(0, 0))), ("c", "t", "")]
)  # fmt: skip
def test_an_identity_that_lacks_anything_is_not_complete(cluster: str, name: str, topic_id: str) -> None:
    assert TopicIdentity("c", "t", TopicIds("").accept("t", REAL)).complete
    assert not TopicIdentity(cluster, name, topic_id).complete
