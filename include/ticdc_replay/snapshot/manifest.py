"""The manifest: what exactly a window's replay reads, fixed before anything is read."""

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Grade, PinPolicy, Window


class PartitionPin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pinned range of one partition and the evidence for it."""

    range: OffsetRange
    live: bool
    """Whether TiCDC writes to this partition at all (it carried a watermark)."""
    resolved_ts: int | None
    """The first resolved-ts at or after the window's end (TSO); None where not live."""
    start_margin_ms: int | None
    """Smallest (record time − physical(commitTs)) in the examined head of the range, in ms; None if nothing to measure."""
    resolved_at: int | None = None
    """Offset of the message with ``resolved_ts`` if the range goes on after it; None if it is the last of the range."""

    @property
    def evidence(self) -> int | None:
        """Offset of the message with ``resolved_ts``; None where there is none."""
        if self.resolved_ts is None:
            return None
        return self.range.end - 1 if self.resolved_at is None else self.resolved_at


class TopicPin(msgspec.Struct, frozen=True):
    """One topic. ``topic_id`` is Kafka's own id: another one later means the topic was recreated."""

    topic: str
    topic_id: str
    partitions: tuple[PartitionPin, ...]


class PinnedFile(msgspec.Struct, frozen=True):
    """A file beside the manifest, named by its SHA-256 (hex)."""

    uri: str
    sha256: str
    count: int

    @property
    def name(self) -> str:
        """Its name below the root of the pipeline's artefacts: folder and file."""
        return "/".join(self.uri.rsplit("/", 2)[1:])


class RedrivenMessages(msgspec.Struct, frozen=True):
    """Messages out of the quarantine of a run, as the input of another one."""

    run_hash: str
    """The run of the window in whose quarantine they, or what a re-drive left of them, stand."""
    asked_at_ms: int
    """Makes each re-drive an input of its own: what an earlier one lacked may be there now."""
    messages: PinnedFile
    """The messages with their bytes (``changelog.files.set_aside.MESSAGES``)."""


class ManifestSource(msgspec.Struct, frozen=True):
    """A complete changelog of the pipeline, and which rows of it are meant: those whose commitTs is in *window*."""

    run_hash: str
    index_sha256: str
    """Of its ``index.json`` (hex)."""
    window: Window


class SharedInput(msgspec.Struct, frozen=True):
    """The pinned input of a wider window, which is decoded once for all windows in it."""

    manifest: str
    """Its name below the pipeline's artefacts."""
    input_hash: str
    window: Window


class BaseInput(msgspec.Struct, frozen=True):
    """A dump of the upstream at the window's first TSO."""

    uri: str
    """Of its folder."""
    files: PinnedFile
    """Its tables, with their definitions and files (``dumps.survey.Dump``)."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable input of one window. Written once as canonical JSON, named by ``input_hash``."""

    format: int = 1
    pipeline: str
    changefeed_hash: str
    """Hash of what the changefeed's configuration means for reading (protocol, options, zone)."""
    window: Window
    grade: Grade
    reasons: tuple[str, ...] = ()
    """Why the window is not proven; empty when it is."""
    pin: PinPolicy = "first"
    topics: tuple[TopicPin, ...]
    cluster_id: str | None = None
    """Kafka's own, of all topics; None in manifests of earlier versions, and where what the window is taken from lacks it."""
    tables: tuple[str, ...] | None = None
    """Patterns of the tables whose topics these are; None where all tables are in the default topic."""
    inventory: PinnedFile | None = None
    """Objects of the claim-check store: Parquet of name, size (bytes), etag, last_modified. None where listing is off."""
    schemas: PinnedFile | None = None
    """The table schemas known before the range (``SchemaHistory.encode``); None where none was known."""
    all_earlier_ddl: bool = False
    """Whether ``schemas`` include all DDL below the window's start. Then older DDL in the ranges is repeated, and ignored. False
    in manifests of earlier versions, and if no resolved-ts shows it."""
    replaces: str | None = None
    """The ``input_hash`` of the window's manifest before. So a window that is pinned again has another input even with the same
    offsets and inventory: what is not pinned may have changed, such as a restored object."""
    redrive: RedrivenMessages | None = None
    """What is decoded instead of ranges of Kafka; topics then have no partitions."""
    derived: tuple[ManifestSource, ...] = ()
    """The changelogs that the window is taken from instead of Kafka: their windows are disjoint, in order, and make it up."""
    shared: SharedInput | None = None
    """The wider window that the window is taken from, once that is decoded."""
    base: BaseInput | None = None
    """The dump that is read instead of Kafka; there are no topics then."""
    pinned_at_ms: int

    @property
    def input_hash(self) -> str:
        """Names the pinned input: the hash of all but the moment of pinning and the places of files."""
        content = msgspec.to_builtins(self)
        del content["pinned_at_ms"]
        for member in ("inventory", "schemas"):
            if content[member] is not None:
                del content[member]["uri"]
        if content["redrive"] is None:
            del content["redrive"]  # hashes are those of before there were re-drives
        else:
            del content["redrive"]["messages"]["uri"]
        if content["pin"] == "first":
            del content["pin"]
        if content["base"] is not None:
            del content["base"]["files"]["uri"]
        for member in ("cluster_id", "derived", "shared", "all_earlier_ddl", "base"):
            if not content[member]:
                del content[member]
        return canonical.hash_of(content)

    @property
    def identities(self) -> dict[str, TopicIdentity]:
        """The topics, by name; without cluster where that is not known."""
        cluster_id = self.cluster_id or ""
        return {topic.topic: TopicIdentity(cluster_id, topic.topic, topic.topic_id) for topic in self.topics}

    @property
    def reads_kafka(self) -> bool:
        """Whether ranges of Kafka are decoded, and not what was read from it before."""
        return self.redrive is None and not self.derived and self.shared is None and self.base is None

    @property
    def row_window(self) -> Window | None:
        """The window that decides by commitTs which rows are meant; None where all rows of the ranges are."""
        return None if self.grade == "offset" else self.window

    def live_ranges(self) -> list[OffsetRange]:
        """The non-empty ranges of partitions that carried a watermark; where none did, all non-empty ones."""
        pins = [pin for topic in self.topics for pin in topic.partitions if pin.range.length > 0]
        return sorted(pin.range for pin in pins if pin.live) or self.ranges()

    def ranges(self) -> list[OffsetRange]:
        """The non-empty ranges to read, in (topic, partition) order."""
        return sorted(pin.range for topic in self.topics for pin in topic.partitions if pin.range.length > 0)


def decode(content: bytes) -> Manifest:
    """A manifest from its JSON. Raises msgspec.ValidationError with the path inside the document."""
    return msgspec.json.decode(content, type=Manifest)
