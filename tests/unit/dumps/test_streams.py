"""The content of compressed files, and files that are cut off or damaged."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dumpling_files import compressed
from tests.support.examples import examples
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError
from ticdc_replay.dumps.names import Compression
from ticdc_replay.dumps.streams import blocks, read_whole
from ticdc_replay.storage import ObjectStore, open_store

COMPRESSIONS: list[Compression] = ["", "gzip", "zstd", "snappy"]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_of_several_blocks(tmp_path: Path, store: ObjectStore, compression: Compression) -> None:
    content = b"".join(b'%d,"some text"\r\n' % number for number in range(600_000)) + bytes(range(256)) * 500
    (tmp_path / "file").write_bytes(compressed(content, compression))
    found = list(blocks(store, "file", compression))
    assert len(found) > 1
    assert b"".join(found) == content


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=examples(0.3))
@given(content=st.binary(max_size=300))
def test_any_content(tmp_path_factory: pytest.TempPathFactory, compression: Compression, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("dump")
    (folder / "file").write_bytes(compressed(content, compression))
    assert read_whole(open_store(folder.as_uri()), "file", compression) == content


def test_several_members_of_gzip_follow_each_other(tmp_path: Path, store: ObjectStore) -> None:
    (tmp_path / "file").write_bytes(compressed(b"one,", "gzip") + compressed(b"two", "gzip"))
    assert read_whole(store, "file", "gzip") == b"one,two"


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, store: ObjectStore, compression: Compression) -> None:
    content = compressed(bytes(range(256)) * 20, compression)
    (tmp_path / "file").write_bytes(content[: len(content) - 5])
    with pytest.raises(ConfigError, match=r"/file: "):
        read_whole(store, "file", compression)


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
def test_a_file_that_is_not_compressed_is_named(tmp_path: Path, store: ObjectStore, compression: Compression) -> None:
    (tmp_path / "file").write_bytes(b'"id","a"\r\n1,"x"\r\n')
    with pytest.raises(ConfigError, match=r"/file: "):
        read_whole(store, "file", compression)


def test_a_file_that_is_gone(store: ObjectStore) -> None:
    with pytest.raises(ArtifactNotFoundError, match=r"/file is gone"):
        read_whole(store, "file", "")
