"""Jars in the cache are those of the committed checksums, to the byte, or they are refused. Java trusts whom pip and uv trust."""

import shutil
import subprocess

import pytest

from demo.embedded_stack import jars, java
from demo.embedded_stack.errors import StackError
from tests.integration.kafka.secured import make_certificates

pytestmark = pytest.mark.integration

KEYTOOL = ("-m", "java.base/sun.security.tools.keytool.Main", "-list", "-keystore")


@pytest.fixture
def copied_cache(monkeypatch, tmp_path):
    """A cache of its own with the Kafka jars in it."""
    folder = jars.fetch(jars.KAFKA)
    copy = shutil.copytree(folder, tmp_path / "jars" / folder.name)
    monkeypatch.setenv("TICDC_REPLAY_CACHE", str(tmp_path))
    return copy


def test_a_complete_cache_is_used_as_it_is(copied_cache, monkeypatch):
    monkeypatch.setattr(jars, "_resolve", lambda *_: pytest.fail("fetched again"))
    assert jars.fetch(jars.KAFKA) == copied_cache


def test_a_changed_jar_is_refused_with_the_remedy(copied_cache):
    with (copied_cache / "kafka-clients-4.3.1.jar").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StackError, match=r"kafka-clients-4\.3\.1\.jar\. Delete .* and try again"):
        jars.fetch(jars.KAFKA)


def test_a_missing_jar_is_refused(copied_cache):
    (copied_cache / "jopt-simple-5.0.4.jar").unlink()
    with pytest.raises(StackError, match=r"jopt-simple-5\.0\.4\.jar"):
        jars.fetch(jars.KAFKA)


def test_java_reads_the_certificates_of_ssl_cert_file(monkeypatch, tmp_path):
    authority, reader = make_certificates(tmp_path / "made")
    (tmp_path / "trusted.pem").write_text(authority + reader.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    store, _, password = (option.partition("=")[2] for option in jars._trust(tmp_path))
    listed = subprocess.run(
        [java.find_home() / "bin" / "java", *KEYTOOL, store, "-storepass", password], capture_output=True, text=True
    )
    assert "contains 2 entries" in listed.stdout, listed.stdout + listed.stderr


@pytest.mark.parametrize(
    "environment", [{"SSL_CERT_FILE": ""}, {"SSL_CERT_FILE": "x", "JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=y"}]
)
def test_java_keeps_the_certificates_that_it_was_given(monkeypatch, tmp_path, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert jars._trust(tmp_path) == ()
