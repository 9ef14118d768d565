"""Jars in the cache are those of the committed checksums, to the byte, or they are refused."""

import shutil

import pytest

from demo.embedded_stack import jars
from demo.embedded_stack.errors import StackError

pytestmark = pytest.mark.integration


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
