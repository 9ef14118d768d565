"""A run's folder in the artefact store: the manifest it comes from, and the changelog it becomes."""

import contextlib
import hashlib
import logging
from collections.abc import Callable
from typing import Any

from ticdc_replay.changelog.files import index as changelog_index
from ticdc_replay.changelog.files import layout
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.decode.plan.known_objects import used_objects
from ticdc_replay.decode.plan.look_ahead import decode_definitions
from ticdc_replay.decode.plan.lost_files import tell_lost
from ticdc_replay.decode.plan.tasks import Attempt
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactExistsError, ArtifactNotFoundError
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest, PinnedFile, Redriven, Source
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

    def arrow_artifacts(self) -> tuple[Any, str]:
        """A ``pyarrow.fs.FileSystem`` and the path of the pipeline's artefacts in it, in which all changelogs lie."""
        filesystem, base = self._store.arrow_filesystem()
        return filesystem, base

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
        content = self._store.get(manifest.schemas.name)
        if canonical.digest(content) != manifest.schemas.sha256:
            raise ArtifactCorruptError(
                f"{manifest.schemas.uri} does not have the hash in its name; pin the window anew (repin)"
            )
        return SchemaHistory.decode(content)

    def messages(self, redriven: Redriven) -> str:
        """The path, in the filesystem of ``arrow_root``, of the messages that are decoded instead of a range of Kafka.

        Raises ArtifactCorruptError and ArtifactNotFoundError where they are not what was pinned.
        """
        filesystem, base = self._store.arrow_filesystem()
        path = f"{base}/{redriven.messages.name}"
        self._verify(filesystem, path, redriven.messages)
        return path

    def index(self) -> ChangelogIndex | None:
        """The index of the changelog, None where there is none yet. Files that it names may be ``lost`` since."""
        try:
            return changelog_index.decode(self._store.get(f"{self.root}/{layout.INDEX}"))
        except ArtifactNotFoundError:
            return None

    def lost(self, index: ChangelogIndex) -> list[str]:
        """The files of *index* that are gone, sorted: lifecycle rules of a store remove objects one by one, the index last."""
        return lost_files(self._store, index)

    def source(self, source: Source) -> ChangelogIndex:
        """The changelog *source* of a derived one.

        Raises ArtifactNotFoundError where it, or a file of it, is gone, ArtifactCorruptError where it is another one.
        """
        root = layout.changelog_root(source.run_hash)
        try:
            content = self._store.get(f"{root}/{layout.INDEX}")
        except ArtifactNotFoundError:
            raise ArtifactNotFoundError(
                f"{self._store.uri(root)}, the changelog that {source.window} is derived from, was removed; pin the window "
                "anew (repin)"
            ) from None
        if canonical.digest(content) != source.index_sha256:
            raise ArtifactCorruptError(
                f"{self._store.uri(root)} is not the changelog that {source.window} was derived from when it was pinned; pin "
                "the window anew (repin)"
            )
        index = changelog_index.decode(content)
        lost = lost_files(self._store, index)
        if lost:
            raise ArtifactNotFoundError(
                f"{tell_lost(source.run_hash, index, lost)}, and {source.window} is derived from it. Restore the files, or pin "
                "the window anew (repin)"
            )
        return index

    def discard(self, index: ChangelogIndex) -> None:
        """Remove *index*, of which files are ``lost``, so that the changelog can be completed anew.

        What other attempts do meanwhile stands: an index that is not *index* stays, and counts. A load that has read *index*
        already fails at the first file that is gone. The other files stay until the changelog is complete again.
        """
        # Look and delete are two requests. An index of another attempt gets in between only if that attempt removes the old one
        # and decodes the window within these milliseconds; its run would find no changelog then, and this one makes it again.
        if self.index() == index:
            self._store.delete(f"{self.root}/{layout.INDEX}")

    def known_objects(self, manifest: Manifest) -> tuple[str, ...]:
        """Where to read what is known of claim-check objects: the inventory, then what runs of this input used.

        Paths in the filesystem of ``arrow_root``, for ``known_objects.KnownObjects``. Raises ArtifactCorruptError and
        ArtifactNotFoundError where the inventory is not what was pinned.
        """
        filesystem, base = self._store.arrow_filesystem()
        names = [entry.name for entry in self._store.list(f"{layout.used_folder(self._job.input_hash)}/")]
        if manifest.inventory is not None:
            inventory = manifest.inventory.name
            self._verify(filesystem, f"{base}/{inventory}", manifest.inventory)
            names.insert(0, inventory)
        return tuple(f"{base}/{name}" for name in names)

    def known_rows(self) -> tuple[str, ...]:
        """Where to read what runs of this input read from the source; paths in the filesystem of ``arrow_root``."""
        _, base = self._store.arrow_filesystem()
        folder = layout.source_rows_folder(self._job.input_hash)
        return tuple(f"{base}/{entry.name}" for entry in self._store.list(f"{folder}/"))

    def complete(self, attempt: Attempt, decode: Callable[[], ChangelogIndex]) -> ChangelogIndex:
        """Make what *decode* writes the changelog; the index that counts: of this attempt, or of one that was faster.

        Several attempts may run at a time, such as a retry beside a driver that was taken for dead. The first to put its index
        wins. It deletes what is not in it: the keys, what was written anew, and the files of all other attempts, which may then
        fail at any point; so an attempt that fails where an index is there gives way to it. Raises what *decode* raises where
        there is no index.
        """
        try:
            index = decode()
            self._record_used(index)
            self._store.put_once(f"{self.root}/{layout.INDEX}", canonical.encode(index))
        except Exception:
            winner = self.index()
            if winner is None:
                raise
            log.info("another attempt has completed changelog %s; its files count", self._job.run_hash, exc_info=True)
            self._delete_leftovers(winner, f"{attempt.id}-")
            return winner
        self._delete_leftovers(index, "")
        return index

    def sought_versions(self, seek: Callable[[], tuple[TableDefinition, ...]]) -> tuple[TableDefinition, ...]:
        """What the first run of this input that had to *seek* table versions found; every later one gets the same."""
        name = layout.sought_versions(self._job.input_hash)
        with contextlib.suppress(ArtifactNotFoundError):
            return decode_definitions(self._store.get(name))
        with contextlib.suppress(ArtifactExistsError):  # another run was faster: its answer counts
            self._store.put_once(name, canonical.encode(seek()))
        return decode_definitions(self._store.get(name))

    def _record_used(self, index: ChangelogIndex) -> None:
        """Keep what claim-check objects and writer schemas of *index* were, by their content: later runs of the input hold to it.

        Put before the index, so that no changelog is without; the record of an attempt that does not win is true as well.
        """
        content = used_objects(*self.arrow_root(), index.reference_files)
        if content is not None:
            name = f"{layout.used_folder(index.input_hash)}/{canonical.digest(content)}.parquet"
            self._store.put_once(name, content)
        for schema_id, sha256 in index.writer_schemas.items():
            try:
                self._store.put_once(layout.used_schema(index.input_hash, schema_id), sha256.encode())
            except ArtifactExistsError:
                raise ArtifactCorruptError(
                    f"schema {schema_id} of the registry is not the one that an earlier run of this input used; "
                    "restore the registry's content, or pin the window anew (repin)"
                ) from None

    def _verify(self, filesystem: Any, path: str, pinned: PinnedFile) -> None:
        try:
            with filesystem.open_input_stream(path) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            raise ArtifactNotFoundError(f"{pinned.uri} was deleted; pin the window anew (repin)") from None
        if digest != pinned.sha256:
            raise ArtifactCorruptError(f"{pinned.uri} does not have the hash in its name; pin the window anew (repin)")

    def _delete_leftovers(self, index: ChangelogIndex, prefix: str) -> None:
        """Delete the files whose name starts with *prefix* and which are not in *index*."""
        kept = {*index.files(), layout.INDEX}
        for entry in self._store.list(f"{self.root}/"):
            name = entry.name.removeprefix(f"{self.root}/")
            if name not in kept and name.rpartition("/")[2].startswith(prefix):
                self._store.delete(entry.name)


def lost_files(store: ObjectStore, index: ChangelogIndex) -> list[str]:
    """The files of *index*, its own and those it takes from others, that are gone from *store*; sorted."""
    lost = []
    for run, names in {index.run_hash: index.files(), **index.borrowed()}.items():
        root = f"{layout.changelog_root(run)}/"
        there = {entry.name.removeprefix(root) for entry in store.list(root)}
        lost += [f"../{run}/{name}" if run != index.run_hash else name for name in names - there]
    return sorted(lost)
