"""What a changefeed's options let its messages carry, as the protocols' documents say."""

import re
from typing import Any, NamedTuple

from ticdc_replay.changefeed.config import Changefeed

Json = dict[str, Any]


class Wire(NamedTuple):
    """The wire of one variant. ``new`` tells the new architecture's encoders from the classic ones."""

    changefeed: Changefeed
    new: bool

    @property
    def avro(self) -> bool:
        return self.changefeed.protocol in ("avro", "flat-avro")

    @property
    def canal(self) -> bool:
        return self.changefeed.protocol == "canal-json"

    @property
    def debezium(self) -> bool:
        return self.changefeed.protocol in ("debezium", "debezium-avro")

    @property
    def open(self) -> bool:
        return self.changefeed.protocol in ("open-protocol", "default")

    @property
    def simple(self) -> bool:
        return self.changefeed.protocol == "simple"

    @property
    def updated_columns(self) -> bool:
        """Whether an old image has only the columns that changed."""
        feed = self.changefeed
        return (self.open and feed.only_output_updated_columns) or (
            self.canal and (feed.only_output_updated_columns or feed.content_compatible)
        )

    @property
    def old_values(self) -> bool:
        """Whether an UPDATE has an old image."""
        feed = self.changefeed
        if self.avro:
            return feed.avro_include_before_value
        if self.open:
            return feed.output_old_value
        return feed.debezium_output_old_value if self.debezium else True

    @property
    def ddl_in_first_partition(self) -> bool:
        return self.canal

    @property
    def virtual_as_null(self) -> bool:
        """Whether virtual and hidden columns come as NULL."""
        return self.avro and self.new

    def has_tombstones(self) -> bool:
        """Whether a DELETE is a key without value."""
        return self.avro and not self.changefeed.avro_include_before_value

    def commit_ts(self, type_: str) -> frozenset[bool]:
        """Whether rows of *type_* have a commitTs; both where it depends on the version of TiCDC."""
        feed = self.changefeed
        if self.canal or self.avro:
            if not feed.enable_tidb_extension:
                return frozenset({False})
            if self.has_tombstones() and type_ == "delete":
                return frozenset({self.new and feed.avro_enable_watermark})
        return frozenset({True})

    def types(self, event: Json, partial: bool) -> frozenset[str]:
        """How a row line of *event* may name its operation."""
        type_: str = event["type"]
        if self.avro:
            told = self.changefeed.enable_tidb_extension or self.changefeed.avro_include_before_value
            return frozenset({type_ if told or type_ == "delete" else "upsert"})
        if self.open and type_ != "delete":
            if not self.old_values or (self.updated_columns and type_ == "insert"):
                return frozenset({"upsert"})
            if self.updated_columns and (event.get("no_visible_change") or partial):
                return frozenset({"update", "upsert"})  # classic leaves out a `p` without columns
        return frozenset({type_})

    def may_be_partial(self, type_: str) -> bool:
        feed = self.changefeed
        key_only_delete = feed.delete_only_output_handle_key_columns and (self.open or self.canal)
        return feed.large_message == "handle-key-only" or (type_ == "delete" and key_only_delete)

    def key(self, event: Json) -> list[str]:
        """The columns that an image reduced to its key has."""
        key = event["primary_key"] if self.avro and self.new else event["handle_key"]
        return list(key or ())

    def on_wire(self, event: Json) -> Json:
        """*event* with the names that its rows have on this wire."""
        if self.avro:
            return _renamed(event, schema=sanitized(event["schema"]), table=sanitized(event["table"]))
        return event

    def spelled(self, image: Json | None) -> Json | None:
        """*image* in the spelling of Debezium-Avro's fields, for decoders that keep it."""
        return None if image is None else {sanitized(name): cell for name, cell in image.items()}


def sanitized(name: str) -> str:
    """*name* as Avro records and fields spell it."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def _renamed(event: Json, schema: str, table: str) -> Json:
    images = {
        side: {sanitized(name): cell for name, cell in event[side].items()}
        for side in ("columns", "pre")
        if event.get(side) is not None
    }
    keys = {name: [sanitized(part) for part in event[name] or ()] for name in ("handle_key", "primary_key")}
    return {**event, **images, **keys, "schema": schema, "table": table}
