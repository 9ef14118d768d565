"""Schema registries: where the schemas are that Avro was written with, by the id that stands before every message.

One registry a file, behind ``schemas.lookup.WriterSchemas``. Nothing here reads a schema: that is the codec's business.
"""

from ticdc_replay.registry.open import open_registry
from ticdc_replay.registry.used import UsedSchemas

__all__ = ["UsedSchemas", "open_registry"]
