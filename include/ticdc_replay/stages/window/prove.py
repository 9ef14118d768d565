"""Whether a pinned window can still be replayed: its manifest against Kafka, the claim-check store and its changelogs."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from ticdc_replay.changelog.files import index as changelog_index
from ticdc_replay.changelog.files import layout
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.changelog_store import lost_files
from ticdc_replay.decode.plan.known_objects import KnownObjects
from ticdc_replay.decode.plan.lost_files import describe_lost
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.registry import UsedSchemas
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import load_manifest
from ticdc_replay.snapshot.proof import Finding, prove_in_kafka
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.pinned_objects import PinnedObjects, compare_inventory, compare_objects
from ticdc_replay.stages.window.schemas import all_schemas
from ticdc_replay.state.manifests import WindowManifest


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What still exists of a window's pinned input, and of its changelogs."""

    pipeline: str
    window: Window
    manifest: str
    """URI of the manifest."""
    input_hash: str
    grade: Grade | None = None
    """None where the manifest can't be read."""
    offsets: int = 0
    """How many offsets of Kafka are pinned."""
    objects: int = 0
    """How many claim-check objects were looked at."""
    from_kafka: bool = False
    """Whether the manifest can be decoded from Kafka again."""
    from_others: bool = False
    """Whether the window is taken from other changelogs, or from quarantined messages, and all of these are there."""
    changelogs: tuple[str, ...] = ()
    """The runs whose changelog of the window is whole."""
    findings: tuple[Finding, ...] = ()
    """What is gone or altered; of many objects the first."""
    missing_objects: int = 0
    """Objects that are gone or altered, all counted."""

    @property
    def is_replayable(self) -> bool:
        """Whether the window can be replayed, from Kafka or from changelogs."""
        return self.from_kafka or self.from_others or bool(self.changelogs)


def prove(context: ReplayContext, window: Window) -> Proof:
    """Compare the manifest of *window* with Kafka and the stores. Raises ArtifactNotFoundError if the window was never
    pinned, and what Kafka and the stores raise."""
    entry = context.state.manifests.of_window(context.pipeline.name, window)
    if entry is None:
        raise ArtifactNotFoundError(f"window {window} of pipeline {context.pipeline.name} was never pinned")
    return _prove(context, entry)


def prove_manifest(context: ReplayContext, name: str) -> Proof:
    """Compare a manifest with Kafka and the stores; *name* is its URI, its file's name or its ``input_hash``.

    It need not be the present one of its window. Raises ConfigError for another kind of name, ArtifactNotFoundError if
    there is no such manifest, and what Kafka and the stores raise.
    """
    input_hash = name.rstrip("/").rpartition("/")[2].removesuffix(".json")
    if len(input_hash) != 64 or not set(input_hash) <= set("0123456789abcdef"):
        raise ConfigError(f"{name!r} names no manifest: give its URI, its file's name or its input_hash")
    name = f"manifests/{input_hash}.json"
    try:
        manifest = manifests.decode(context.artifacts.get(name))
    except msgspec.DecodeError as error:
        raise ArtifactCorruptError(f"{context.artifacts.uri(name)} is not a manifest: {error}") from None
    return _prove(
        context, WindowManifest(context.pipeline.name, manifest.window, input_hash, name, manifest.pinned_at_ms)
    )


def _prove(context: ReplayContext, entry: WindowManifest) -> Proof:
    whole, broken = _changelogs(context, entry)
    proof = Proof(
        pipeline=entry.pipeline,
        window=entry.window,
        manifest=context.artifacts.uri(entry.name),
        input_hash=entry.input_hash,
        changelogs=tuple(index.run_hash for index in whole),
    )
    try:
        manifest = load_manifest(context.artifacts, entry).manifest
    except (ArtifactNotFoundError, ArtifactCorruptError) as error:
        return replace(proof, findings=(Finding("manifest", entry.name, str(error)), *broken))
    if manifest.shared is not None:
        wide = manifest.shared
        shared = _prove(context, WindowManifest(entry.pipeline, wide.window, wide.input_hash, wide.manifest, 0))
        return replace(
            shared,
            **{name: getattr(proof, name) for name in ("window", "manifest", "input_hash")},
            from_others=bool(shared.changelogs),
            changelogs=proof.changelogs,
            findings=(*shared.findings, *broken),
        )
    files = list(_files(context, manifest))
    if manifest.base is not None:  # a dump is read once: its changelog is what stays
        return replace(proof, grade=manifest.grade, findings=(*files, *broken))
    if not manifest.reads_kafka:
        lost = [*files, *_sources(context, manifest)]
        return replace(proof, grade=manifest.grade, from_others=not lost, findings=(*lost, *broken))
    lookup = SchemaLookup(all_schemas(context), UsedSchemas(context.writer_schemas))
    codec = codec_for(context.changefeed, context.pipeline.limits.decompressed_max_bytes, lookup)
    skew_ms = context.pipeline.window.clock_skew_seconds * 1000
    lost = [*_configuration(context, manifest), *prove_in_kafka(manifest, context.kafka, codec, skew_ms), *files]
    objects = _objects(context, manifest, whole)
    return replace(
        proof,
        grade=manifest.grade,
        offsets=sum(part.length for part in manifest.ranges()),
        objects=objects.looked_at,
        from_kafka=not lost and not objects.missing,
        findings=(*lost, *objects.findings, *broken),
        missing_objects=objects.missing,
    )


def _configuration(context: ReplayContext, manifest: Manifest) -> Iterator[Finding]:
    """A finding if the changefeed was configured differently: its messages would not be read as they were."""
    if manifest.changefeed_hash != context.changefeed.hash:
        text = "was pinned with another configuration of the changefeed (sink_uri, config or timezone)"
        yield Finding("manifest", f"manifests/{manifest.input_hash}.json", text)


def _changelogs(context: ReplayContext, entry: WindowManifest) -> tuple[list[ChangelogIndex], list[Finding]]:
    """The changelogs of the input that are whole, and what is gone of others."""
    whole, broken = [], []
    for run in context.state.runs.within(entry.pipeline, entry.window):
        if run.input_hash != entry.input_hash or run.index is None:
            continue
        try:
            index = read_index(context.artifacts, run.run_hash)
        except ArtifactNotFoundError:
            broken.append(Finding("changelog", run.run_hash, "was removed"))
            continue
        lost = lost_files(context.artifacts, index)
        if lost:
            broken.append(Finding("changelog", run.run_hash, describe_lost(run.run_hash, index, lost)))
        else:
            whole.append(index)
    return whole, broken


def _sources(context: ReplayContext, manifest: Manifest) -> Iterator[Finding]:
    """What is gone of the changelogs that a window is taken from."""
    for source in manifest.derived:
        name = f"{layout.changelog_root(source.run_hash)}/{layout.INDEX}"
        try:
            content = context.artifacts.get(name)
        except ArtifactNotFoundError:
            yield Finding("changelog", source.run_hash, f"was removed, and {source.window} is taken from it")
            continue
        if canonical.digest(content) != source.index_sha256:
            yield Finding("changelog", source.run_hash, f"is no longer the one that {source.window} is taken from")
            continue
        index = changelog_index.decode(content)
        lost = lost_files(context.artifacts, index)
        if lost:
            yield Finding("changelog", source.run_hash, describe_lost(source.run_hash, index, lost))


def _files(context: ReplayContext, manifest: Manifest) -> Iterator[Finding]:
    """What is gone or altered of the files beside the manifest."""
    redriven = None if manifest.redrive is None else manifest.redrive.messages
    filesystem, base = context.artifacts.arrow_filesystem()
    for pinned in filter(None, (manifest.inventory, manifest.schemas, redriven)):
        if context.artifacts.info(pinned.name) is None:
            yield Finding("file", pinned.uri, "was removed")
            continue
        with filesystem.open_input_stream(f"{base}/{pinned.name}") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != pinned.sha256:
            yield Finding("file", pinned.uri, "was altered: its hash is not the one in its name")


def _objects(context: ReplayContext, manifest: Manifest, whole: Sequence[ChangelogIndex]) -> PinnedObjects:
    """The claim-check objects that messages of the window refer to, if a changelog lists them; else all pinned ones."""
    if context.claim_check is None:
        return PinnedObjects()
    filesystem, base = context.artifacts.arrow_filesystem()
    inventory = None
    if manifest.inventory is not None and context.artifacts.info(manifest.inventory.name) is not None:
        inventory = f"{base}/{manifest.inventory.name}"
    if not whole:
        return PinnedObjects() if inventory is None else compare_inventory(context.claim_check, filesystem, inventory)
    records = context.artifacts.list(f"{layout.used_folder(manifest.input_hash)}/")
    known = KnownObjects(filesystem, [*filter(None, [inventory]), *(f"{base}/{record.name}" for record in records)])
    names = {name for index in whole for name in _references(filesystem, base, index)}
    expected = known.among(names)
    return compare_objects(context.claim_check, {name: expected.get(name) for name in sorted(names)})


def _references(filesystem: Any, base: str, index: ChangelogIndex) -> Iterator[str]:
    """The objects that rows of the window refer to, also of tables that were not asked for; not those that were missing then."""
    inside = (pc.field("commit_ts") >= index.window.from_ts) & (pc.field("commit_ts") < index.window.to_ts)
    needed = (pc.field("status") == "used") | ((pc.field("status") == "not_needed") & inside)
    for name in index.reference_files:
        path = f"{base}/{layout.changelog_root(index.run_hash)}/{name}"
        table = pq.read_table(path, columns=["object_name"], filters=needed, filesystem=filesystem, partitioning=None)
        yield from table["object_name"].to_pylist()
