"""A run's folder in the artefact store: the manifest it comes from, and the changelog it becomes."""

import contextlib
import hashlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from ticdc_replay.changelog.files import index as changelog_index
from ticdc_replay.changelog.files import layout
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.decode.plan.known_objects import used_objects
from ticdc_replay.decode.plan.lost_files import describe_lost
from ticdc_replay.decode.plan.tasks import Attempt
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactExistsError, ArtifactNotFoundError
from ticdc_replay.dumps.survey import Dump
from ticdc_replay.jobspec import DecodeJob, SeedJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, PinnedFile, RedrivenMessages
from ticdc_replay.storage import open_store
from ticdc_replay.storage.base import ObjectStore

log = logging.getLogger(__name__)


class ChangelogStore:
    """The artefacts of one decode. ``root`` is the changelog's folder below the store's root."""

    def __init__(self, store: ObjectStore, job: DecodeJob | SeedJob) -> None:
        self._store = store
        self._job = job
        self.root = job.changelog_root

    @classmethod
    def open(cls, job: DecodeJob | SeedJob, connections: Connections) -> "ChangelogStore":
        """The store that *job* names."""
        return cls(open_store(job.artifacts, connections.get(job.artifacts_connection)), job)

    def arrow_root(self) -> tuple[Any, str]:
        """A ``pyarrow.fs.FileSystem`` and the path of the changelog in it."""
        filesystem, base = self._store.arrow_filesystem()
        return filesystem, f"{base}/{self.root}"

    def arrow_artifacts(self) -> tuple[Any, str]:
        """A ``pyarrow.fs.FileSystem`` and the path of the pipeline's artefacts in it, in which all changelogs lie."""
        return self._store.arrow_filesystem()

    def manifest(self) -> Manifest:
        """The manifest of the job. Raises ArtifactCorruptError where it is not what its name says."""
        manifest = manifests.decode(self._store.get(self._job.manifest))
        if manifest.input_hash != self._job.input_hash:
            raise ArtifactCorruptError(
                f"{self._store.uri(self._job.manifest)} has the hash {manifest.input_hash}, {self._job.input_hash} expected: "
                "it was changed after pinning; pin the window again (repin)"
            )
        return manifest

    def known_schemas(self, manifest: Manifest) -> SchemaHistory:
        """The table schemas that were known when the window was pinned."""
        if manifest.schemas is None:
            return SchemaHistory()
        content = self._store.get(manifest.schemas.name)
        if canonical.digest(content) != manifest.schemas.sha256:
            raise ArtifactCorruptError(
                f"{manifest.schemas.uri} does not have the hash in its name; pin the window again (repin)"
            )
        return SchemaHistory.decode(content)

    def dump(self, manifest: Manifest) -> Dump:
        """The tables and files of the dump that *manifest* names. Raises ArtifactCorruptError where that is none, or not the
        pinned one."""
        if manifest.base is None:
            raise ArtifactCorruptError(f"{self._store.uri(self._job.manifest)} names no dump")
        pinned = manifest.base.files
        content = self._store.get(pinned.name)
        if canonical.digest(content) != pinned.sha256:
            raise ArtifactCorruptError(f"{pinned.uri} does not have the hash in its name; seed again")
        return msgspec.json.decode(content, type=Dump)

    def messages(self, redriven: RedrivenMessages) -> str:
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

    def source(self, source: ManifestSource) -> ChangelogIndex:
        """The index of *source*, from which another changelog is taken.

        Raises ArtifactNotFoundError if it or one of its files is missing, ArtifactCorruptError if it has changed.
        """
        root = layout.changelog_root(source.run_hash)
        try:
            content = self._store.get(f"{root}/{layout.INDEX}")
        except ArtifactNotFoundError:
            raise ArtifactNotFoundError(
                f"{self._store.uri(root)}, the changelog that {source.window} is taken from, was removed; pin the window "
                "again (repin)"
            ) from None
        if canonical.digest(content) != source.index_sha256:
            raise ArtifactCorruptError(
                f"{self._store.uri(root)} is not the changelog that {source.window} was taken from when it was pinned; pin "
                "the window again (repin)"
            )
        index = changelog_index.decode(content)
        lost = lost_files(self._store, index)
        if lost:
            raise ArtifactNotFoundError(
                f"{describe_lost(source.run_hash, index, lost)}, and {source.window} is taken from it. Restore the files, or "
                "pin the window again (repin)"
            )
        return index

    def discard(self, index: ChangelogIndex) -> None:
        """Remove *index*, some of whose files are ``lost``, so that the changelog can be completed again.

        An index that another attempt has put meanwhile stays. A load that has read *index* fails at the first missing file. The
        other files stay until the changelog is complete again.
        """
        # Comparing and deleting are two requests. Another attempt would have to decode the window between them; its run would
        # then find no changelog, and this attempt writes it.
        if self.index() == index:
            self._store.delete(f"{self.root}/{layout.INDEX}")

    def known_objects(self, manifest: Manifest) -> tuple[str, ...]:
        """Files for ``known_objects.KnownObjects``: the inventory, then the records of runs of this input.

        They are paths in the filesystem of ``arrow_root``. Raises ArtifactCorruptError or ArtifactNotFoundError if the
        inventory is not the one that was pinned.
        """
        filesystem, base = self._store.arrow_filesystem()
        names = [entry.name for entry in self._store.list(f"{layout.used_folder(self._job.input_hash)}/")]
        if manifest.inventory is not None:
            inventory = manifest.inventory.name
            self._verify(filesystem, f"{base}/{inventory}", manifest.inventory)
            names.insert(0, inventory)
        return tuple(f"{base}/{name}" for name in names)

    def known_rows(self) -> tuple[str, ...]:
        """Files of rows that runs of this input read from the source; paths in the filesystem of ``arrow_root``."""
        _, base = self._store.arrow_filesystem()
        folder = layout.source_rows_folder(self._job.input_hash)
        return tuple(f"{base}/{entry.name}" for entry in self._store.list(f"{folder}/"))

    def complete(self, attempt: Attempt, decode: Callable[[], ChangelogIndex]) -> ChangelogIndex:
        """Write the changelog by *decode*; returns the index that counts: of this attempt, or of a faster one.

        Several attempts may run at a time, such as a retry beside a driver that only seemed dead. The first to put its index
        wins and deletes every file that is not in it. Other attempts may then fail anywhere; an attempt that fails returns the
        index of the winner. Raises what *decode* raises if there is no index.
        """
        try:
            index = decode()
            self._record_used(index)
            self._store.put_once(f"{self.root}/{layout.INDEX}", canonical.encode(index))
        except Exception as error:
            winner = self.index()
            if winner is None:
                raise
            # That its index was there first is no fault, and has no stack that anybody needs.
            failure = None if isinstance(error, ArtifactExistsError) else error
            log.info(
                "another attempt has completed changelog %s; its files are used", self._job.run_hash, exc_info=failure
            )
            self._delete_leftovers(winner, f"{attempt.id}-")
            return winner
        self._delete_leftovers(index, "")
        return index

    def sought_versions(self, seek: Callable[[], tuple[TableDefinition, ...]]) -> tuple[TableDefinition, ...]:
        """The table versions that the first run of this input found by *seek*; every later run gets the same."""
        name = layout.sought_versions(self._job.input_hash)
        if self._store.info(name) is None:
            with contextlib.suppress(ArtifactExistsError):  # another run was faster: its answer counts
                self._store.put_once(name, canonical.encode(seek()))
        return msgspec.json.decode(self._store.get(name), type=tuple[TableDefinition, ...])

    def _record_used(self, index: ChangelogIndex) -> None:
        """Record the content of the claim-check objects and writer schemas of *index*: later runs of the input must find it.

        Put before the index, so that every changelog has its record. The record of an attempt that does not win is true, too.
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
                    "restore the registry's content, or pin the window again (repin)"
                ) from None

    def _verify(self, filesystem: Any, path: str, pinned: PinnedFile) -> None:
        try:
            with filesystem.open_input_stream(path) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            raise ArtifactNotFoundError(f"{pinned.uri} was deleted; pin the window again (repin)") from None
        if digest != pinned.sha256:
            raise ArtifactCorruptError(f"{pinned.uri} does not have the hash in its name; pin the window again (repin)")

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
