"""Confluent's interface over HTTP: what is asked, what refuses us, and what is only away."""

import pytest

from tests.support.schema_registry import Registry, make_authority, make_certificate, serve, server_context
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TransientError
from ticdc_replay.registry import confluent, open_registry
from ticdc_replay.schemas.lookup import UnusableAnswerError

pytestmark = pytest.mark.integration

TEXT = '{"type":"record","name":"t","fields":[]}'


@pytest.fixture
def registry():
    with serve(Registry({1: TEXT, 2147483647: "ü"})) as running:
        yield running


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(confluent, "wait_random_exponential", lambda **_: lambda _state: 0.01)


def opened(registry, **fields):
    return open_registry(Connection("registry", "http", **{"host": "127.0.0.1", "port": registry.port, **fields}))


def test_a_schema_is_found_by_its_id(registry):
    assert opened(registry).text("1") == TEXT
    assert opened(registry).text("2147483647") == "ü"


def test_an_unknown_id_is_no_error(registry):
    assert opened(registry).text("2") is None


@pytest.mark.parametrize(
    "schema_id", ["b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63", "-1", "2147483648", "4294967295", "1/../2"]
)
def test_what_is_no_id_of_confluent_is_not_asked_for(registry, schema_id):
    assert opened(registry).text(schema_id) is None
    assert registry.requests == []


@pytest.mark.parametrize("known", [True, False])
def test_a_404_that_says_nothing_is_one_id_s_trouble_where_the_address_answers_for_others(registry, known):
    reader = opened(registry)
    if known:
        assert reader.text("1") == TEXT
    registry.answers = [(404, "<html>Not Found</html>")]
    with pytest.raises(UnusableAnswerError, match="schema 7: HTTP 404"):
        reader.text("7")
    assert reader.text("1") == TEXT


def test_a_404_that_says_nothing_whatever_is_asked_is_a_wrong_address(registry):
    registry.path = "/elsewhere"
    with pytest.raises(PermanentError, match="check host, schema and port, and the path"):
        opened(registry).text("7")


def test_an_answer_that_is_too_large_is_not_read_to_its_end(registry):
    registry.schemas[5] = "x" * (64 << 20)
    with pytest.raises(UnusableAnswerError, match="more than 8388608 bytes"):
        opened(registry).text("5")
    assert opened(registry).text("1") == TEXT


def test_an_answer_that_does_not_end_is_transient(registry, monkeypatch):
    monkeypatch.setattr(confluent, "_ANSWER_S", 0.0)
    with pytest.raises(TransientError, match="did not end within"):
        opened(registry).text("1")


def test_the_interface_may_start_at_a_path(registry):
    registry.path = "/apis/ccompat/v7"
    assert opened(registry, host=f"http://127.0.0.1:{registry.port}/apis/ccompat/v7").text("1") == TEXT
    with pytest.raises(PermanentError, match="not an answer of a schema registry"):
        opened(registry).text("1")


def test_basic_authentication(registry):
    registry.basic("reader", "geheim")
    assert opened(registry, login="reader", password="geheim").text("1") == TEXT
    with pytest.raises(AuthenticationError, match="connection 'registry'") as error:
        opened(registry, login="reader", password="falsch").text("1")
    assert "falsch" not in str(error.value)
    assert len(registry.requests) == 2


def test_bearer_authentication(registry):
    registry.authorization = "Bearer geheim"
    assert opened(registry, extra={"bearer.auth.token": "geheim"}).text("1") == TEXT
    with pytest.raises(AuthenticationError):
        opened(registry).text("1")


@pytest.mark.parametrize("failure", [(503, "busy"), (500, ""), (429, "slow down"), None], ids=repr)
def test_a_registry_that_comes_back_is_waited_for(registry, failure):
    registry.answers = [failure] * 3
    assert opened(registry).text("1") == TEXT


def test_a_registry_that_stays_away_is_transient(registry):
    registry.answers = [(503, '{"error_code": 50301, "message": "no leader"}')] * 5
    with pytest.raises(TransientError, match="no leader"):
        opened(registry).text("1")
    assert len(registry.requests) == 5


def test_a_registry_that_is_not_there_is_transient(registry):
    with serve(Registry()) as gone:
        pass
    with pytest.raises(TransientError, match=r"127\.0\.0\.1"):
        opened(gone).text("1")


@pytest.mark.parametrize(
    "answer", [(200, "<html>please log in</html>"), (200, "[]"), (200, '{"schema": 1}'), (302, ""), (400, "{}")]
)
def test_what_is_no_registry_is_permanent_and_asked_once(registry, answer):
    registry.answers = [answer]
    with pytest.raises(PermanentError, match="not an answer of a schema registry"):
        opened(registry).text("1")
    assert len(registry.requests) == 1


def test_tls_trusts_the_authority_of_the_connection_alone(tmp_path):
    authority = make_authority()
    context = server_context(make_certificate("registry", authority), tmp_path)
    with serve(Registry({1: TEXT}), context) as secured:
        trusting = {"schema": "https", "extra": {"ssl.ca.pem": authority.certificate}}
        assert opened(secured, **trusting).text("1") == TEXT
        (tmp_path / "ca.pem").write_text(authority.certificate)
        by_path = {"schema": "https", "extra": {"ssl.ca.location": str(tmp_path / "ca.pem")}}
        assert opened(secured, **by_path).text("1") == TEXT
        with pytest.raises(PermanentError, match=r"ssl\.ca\.pem"):
            opened(secured, schema="https").text("1")


def test_tls_shows_the_certificate_of_the_connection(tmp_path):
    authority = make_authority()
    context = server_context(make_certificate("registry", authority), tmp_path, client_authority=authority)
    client = make_certificate("reader", authority)
    with serve(Registry({1: TEXT}), context) as secured:
        extra = {"ssl.ca.pem": authority.certificate}
        shown = {"ssl.certificate.pem": client.certificate, "ssl.key.pem": client.key}
        assert opened(secured, schema="https", extra={**extra, **shown}).text("1") == TEXT
        with pytest.raises(AuthenticationError, match=r"ssl\.certificate"):
            opened(secured, schema="https", extra=extra).text("1")
