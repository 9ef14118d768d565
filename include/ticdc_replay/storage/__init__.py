"""Object stores with one contract: where artefacts live and where claim-check objects are read from.

``base`` is the contract, ``file`` and ``s3`` implement it, ``open_store`` (``registry``) picks one by the URI's scheme,
``listing`` lists a large store in parallel. ``deletion`` is a capability of its own, for claim-check stores: deleting objects
that did not change since they were listed, and what a store itself deletes (``facts``). Nothing here knows what the objects mean.
"""

from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.registry import open_store

__all__ = ["ObjectInfo", "ObjectStore", "open_store"]
