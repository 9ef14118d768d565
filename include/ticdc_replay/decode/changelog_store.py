"""A run's folder in the artefact store: the manifest it comes from, and the changelog it becomes."""

import logging
from typing import Any

import pyarrow.parquet as pq

from ticdc_replay.changelog import index as changelog_index
from ticdc_replay.changelog import layout
from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactExistsError, ArtifactNotFoundError
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.storage import open_store
from ticdc_replay.storage.base import ObjectStore

log = logging.getLogger(__name__)


class ChangelogStore:
    """The artefacts of one decode. ``root`` is the changelog's folder below the store's root."""

    def __init__(self, store: ObjectStore, job: DecodeJob) -> None:
        self._store = store
        self._job = job
        self.root = job.changelog_root

    @classmethod
    def open(cls, job: DecodeJob, connections: Connections) -> "ChangelogStore":
        """The store that *job* names."""
        return cls(open_store(job.artifacts, connections.get(job.artifacts_connection)), job)

    def arrow_root(self) -> tuple[Any, str]:
        """A ``pyarrow.fs.FileSystem`` and the path of the changelog in it."""
        filesystem, base = self._store.arrow_filesystem()
        return filesystem, f"{base}/{self.root}"

    def manifest(self) -> Manifest:
        """The manifest of the job. Raises ArtifactCorruptError where it is not what its name says."""
        manifest = manifests.decode(self._store.get(self._job.manifest))
        if manifest.input_hash != self._job.input_hash:
            raise ArtifactCorruptError(
                f"{self._store.uri(self._job.manifest)} has the hash {manifest.input_hash}, {self._job.input_hash} expected: "
                "it was changed after pinning; pin the window anew (repin)"
            )
        return manifest

    def known_schemas(self, manifest: Manifest) -> SchemaHistory:
        """The table schemas that were known when the window was pinned."""
        if manifest.schemas is None:
            return SchemaHistory()
        folder, _, name = manifest.schemas.uri.rpartition("/")
        content = self._store.get(f"{folder.rpartition('/')[2]}/{name}")
        if canonical.digest(content) != manifest.schemas.sha256:
            raise ArtifactCorruptError(
                f"{manifest.schemas.uri} does not have the hash in its name; pin the window anew (repin)"
            )
        return SchemaHistory.decode(content)

    def index(self) -> ChangelogIndex | None:
        """The index of the changelog, None where it is not complete yet."""
        try:
            return changelog_index.decode(self._store.get(f"{self.root}/{layout.INDEX}"))
        except ArtifactNotFoundError:
            return None

    def commit(self, index: ChangelogIndex) -> ChangelogIndex:
        """Make the changelog visible; the index that counts: *index*, or that of a run that was faster.

        Afterwards the files that are not in it (of failed attempts, of rewritten copies, the keys) are deleted.
        """
        self._store.put_once(f"{self.root}/{layout.USED}", canonical.encode(self._used_objects(index)))
        try:
            self._store.put_once(f"{self.root}/{layout.INDEX}", canonical.encode(index))
        except ArtifactExistsError:
            found = self.index()
            assert found is not None
            log.info("another run has completed changelog %s first; its files count", index.run_hash)
            return found
        self._delete_leftovers(index)
        return index

    def _used_objects(self, index: ChangelogIndex) -> dict[str, list[str]]:
        """ETag and SHA-256 of every claim-check object whose content is in the changelog, by name."""
        filesystem, root = self.arrow_root()
        used: dict[str, list[str]] = {}
        for name in index.reference_files:
            table = pq.read_table(
                f"{root}/{name}",
                columns=["object_name", "etag", "sha256"],
                filters=[("status", "=", "used")],
                filesystem=filesystem,
                partitioning=None,
            )
            for object_name, etag, sha256 in zip(*(column.to_pylist() for column in table.columns), strict=True):
                before = used.setdefault(object_name, [etag, sha256])
                if before[1] != sha256:
                    raise ArtifactCorruptError(
                        f"claim-check object {object_name} changed while it was read: SHA-256 {before[1]} and {sha256}"
                    )
        return used

    def _delete_leftovers(self, index: ChangelogIndex) -> None:
        kept = {file.name for table in index.tables for file in table.files}
        kept |= {*index.quarantine_files, *index.reference_files, *index.sparse_index_files, layout.INDEX, layout.USED}
        for entry in self._store.list(f"{self.root}/"):
            if entry.name.removeprefix(f"{self.root}/") not in kept:
                self._store.delete(entry.name)
