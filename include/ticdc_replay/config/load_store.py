"""Loading a store file, with the files of the pipelines that write to it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ticdc_replay.changefeed.secrets import refuse_secrets
from ticdc_replay.config.findings import explained
from ticdc_replay.config.load import LoadedPipeline, load_pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.config.yaml_file import read_yaml
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.storage.names import may_be_same_folder

PIPELINE_SUFFIXES = (".yaml", ".yml")
LoadPipeline = Callable[[Path], LoadedPipeline]


class LoadedStore(NamedTuple):
    """A store file, read and checked against the files of pipelines."""

    store: Store
    path: Path
    pipelines: tuple[LoadedPipeline, ...]
    """Those that the store lists, in its order. Every one's changefeed writes to the store."""
    unlisted: tuple[str, ...]
    """Files of pipelines that write to the store unlisted, or can't be loaded, with the reason. Objects look orphaned."""

    @property
    def owners_complete(self) -> bool:
        """Whether all changefeeds that write to the store are known. Nothing may be deleted where they are not."""
        return self.store.owners_complete and not self.unlisted


def load_store(path: str | Path, pipelines_folder: str | Path, load: LoadPipeline = load_pipeline) -> LoadedStore:
    """The store in the YAML file *path*. Also reads every pipeline file in *pipelines_folder*, with *load*.

    Raises SecretInConfigError for a secret, and ConfigError for other errors in it or in a listed pipeline: a missing
    file, another claim-check store or none, and an unlisted pipeline that writes to the store although its owners are
    said to be complete. Other files that can't be loaded make ``owners_complete`` false.
    """
    path, folder = Path(path), Path(pipelines_folder)
    document = read_yaml(path)
    refuse_secrets(document, str(path))
    try:
        store = Store.model_validate(document)
    except ValidationError as error:
        raise explained(error, document, path, Store) from None
    listed, unlisted, broken = _pipelines(store, path, folder, load)
    if store.owners_complete and unlisted:
        raise ConfigError(
            f"{path}: owners_complete: is true, but: {'; '.join(unlisted)}. List what writes to {store.uri} in pipelines, or set "
            "owners_complete: false"
        )
    return LoadedStore(store, path, listed, (*unlisted, *broken))


def _pipelines(
    store: Store, path: Path, folder: Path, load: LoadPipeline
) -> tuple[tuple[LoadedPipeline, ...], list[str], list[str]]:
    """The pipelines that *store* lists, and lines about other files in *folder* that write to it or can't be loaded."""
    if not folder.is_dir():
        raise ConfigError(f"{path}: pipelines: {folder}, where their files are looked for, is not a folder")
    listed: dict[str, LoadedPipeline] = {}
    unlisted, broken = [], []
    for file in sorted(found for found in folder.iterdir() if found.suffix in PIPELINE_SUFFIXES and found.is_file()):
        try:
            loaded = load(file)
        except ConfigError as error:
            broken.append(f"{file} can't be loaded: {error}")
            continue
        name = loaded.pipeline.name
        if name in listed:
            raise ConfigError(f"{file}: name: {listed[name].path} has the name {name} too; names must differ")
        if name in store.pipelines:
            listed[name] = _belonging(loaded, store, path)
        elif (uri := loaded.changefeed.claim_check_uri) is not None and may_be_same_folder(uri, store.uri):
            unlisted.append(f"{file} writes to {uri} and is not listed")
    missing = [name for name in store.pipelines if name not in listed]
    if missing:
        known = f"; {'; '.join(broken)}" if broken else ""
        raise ConfigError(f"{path}: pipelines: no file in {folder} has the pipeline {missing[0]}{known}")
    return tuple(listed[name] for name in store.pipelines), unlisted, broken


def _belonging(loaded: LoadedPipeline, store: Store, path: Path) -> LoadedPipeline:
    uri = loaded.changefeed.claim_check_uri
    if uri == store.uri:
        return loaded
    instead = "uses no claim-check store" if uri is None else f"writes to {uri}"
    raise ConfigError(
        f"{path}: pipelines: the changefeed of {loaded.pipeline.name} ({loaded.path}) {instead}, not to {store.uri}"
    )
