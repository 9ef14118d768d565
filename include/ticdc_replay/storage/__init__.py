"""Object stores behind one contract: where artefacts live and where claim-check objects are read from.

``base`` is the contract, ``file`` and ``s3`` implement it, ``open_store`` (``registry``) picks one by the URI's scheme,
``listing`` lists a large store in parallel, ``deletion`` deletes many objects. Nothing here knows what the objects mean.
"""

from ticdc_replay.storage.base import Deletion, DeletionOutcome, ObjectInfo, ObjectStore
from ticdc_replay.storage.facts import StoreFacts, Versioning
from ticdc_replay.storage.registry import open_store

__all__ = ["Deletion", "DeletionOutcome", "ObjectInfo", "ObjectStore", "StoreFacts", "Versioning", "open_store"]
