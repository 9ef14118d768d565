"""Functions that are sent to executors, sealed where they travel in the plan of a query.

Tasks carry connections. In classic Spark a function goes to executors alone. Over Spark Connect it is a part of the plan, which
the server may log, show and keep. So there it is encrypted with a key of the session, and the key goes as a file artefact: the
server keeps it in the session's folder, and gives it to executors that run something of the session.
"""

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from cryptography.fernet import Fernet
from pyspark import SparkFiles, cloudpickle
from pyspark.sql import SparkSession

from ticdc_replay.spark.session import is_remote

Function = TypeVar("Function", bound=Callable[..., Any])

_keys: WeakKeyDictionary[SparkSession, tuple[str, Fernet]] = WeakKeyDictionary()
"""Of each session: the name of the file with its key on executors, and the key."""


def sealed(spark: SparkSession, function: Function) -> Function:
    """*function* as it may be in a plan of *spark*: itself in classic Spark, else what opens it on an executor and calls it.

    The library must be there, on executors as well.
    """
    if not is_remote(spark):
        return function
    if spark not in _keys:
        _keys[spark] = _key_at(spark)
    name, key = _keys[spark]
    opened: Any = _Sealed(name, key.encrypt(cloudpickle.dumps(function)))
    return opened  # type: ignore[no-any-return]


def _key_at(spark: SparkSession) -> tuple[str, Fernet]:
    name, key = uuid4().hex, Fernet.generate_key()
    with tempfile.TemporaryDirectory(prefix="ticdc-replay-key-") as folder:
        file = Path(folder) / name
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            out.write(key)
        spark.addArtifacts(str(file), file=True)
    return name, Fernet(key)


class _Sealed:
    """Calls a function that is encrypted with the key in the executor's file *name*."""

    def __init__(self, name: str, content: bytes) -> None:
        self._name = name
        self._content = content
        self._function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            key = Path(SparkFiles.get(self._name)).read_bytes()
            self._function = pickle.loads(Fernet(key).decrypt(self._content))
        return self._function(*arguments)
