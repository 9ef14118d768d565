"""Waits for an application of a cluster without holding a worker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from airflow.sdk import TaskInstanceState
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from ticdc_replay.airflow.connections import resolve_in_trigger
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError, TicdcReplayError, TransientError
from ticdc_replay.domain.handover import HandedOverError
from ticdc_replay.jobspec import DecodeJob, WrittenJob
from ticdc_replay.submit.cluster import POLL_S, Application, Cluster, look, remove_key
from ticdc_replay.submit.clusters import cluster_of
from ticdc_replay.submit.outcome import JobFile

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.stages.leases import Hold
    from ticdc_replay.store_stages.context import StoreContext

    Engine = ReplayContext | StoreContext

T = TypeVar("T")


async def _uninterrupted(work: Awaitable[T]) -> T:
    """What *work* returns. Cancels take effect when it has returned: a triggerer cancels every second, until the trigger ends."""
    running = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from running.exception()
    return running.result()


class ApplicationTrigger(BaseTrigger):
    """Looks every *poll_seconds* whether *application*, which runs *job*, has ended; its one event has the fields of
    ``submit.cluster.Application``, or is ``{"error": …}`` where it can't look any more. *files* are ``pipeline_file``, or
    ``store_file`` and ``pipelines``.

    While it looks it holds the leases of a decode. If a person clears the task, or marks it, the application is ended. A manager
    or a state store that does not answer is waited for. Only paths and names are serialised: connections are looked up here.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        job: Mapping[str, Any],
        application: Mapping[str, Any],
        poll_seconds: float = POLL_S,
    ) -> None:
        super().__init__()
        self.files = dict(files)
        self.job = dict(job)
        self.application = dict(application)
        self.poll_seconds = poll_seconds
        self._holds: list[Hold] = []

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "files": self.files,
                "job": self.job,
                "application": self.application,
                "poll_seconds": self.poll_seconds,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            event = (await self._ended())._asdict()
        except TicdcReplayError as error:
            event = {
                "error": f"{type(error).__name__}: {error}. Nobody waits for application {self.application['id']}: it goes on"
            }
        yield TriggerEvent(event)

    async def _ended(self) -> Application:
        application = Application(**self.application)
        held, opened = ExitStack(), None
        try:
            while True:
                try:
                    if any(hold.is_lost for hold in self._holds):
                        self.log.warning("a lease of application %s was lost, and is taken again", application.id)
                        opened = None
                        await self._leave(held, application)
                    opened = opened or await self._begun(held)
                    engine, cluster = opened
                    before, application = application, await asyncio.to_thread(look, cluster, application)
                    if application.described != before.described:
                        self.log.info("%s", application.described)
                    if application.has_ended:
                        return await asyncio.to_thread(self._for_airflow, engine, application)
                except (TransientError, AirflowRuntimeError) as error:  # the latter: Airflow's own API
                    self.log.warning("%s", error)
                await asyncio.sleep(self.poll_seconds)
        finally:
            await self._leave(held, application)

    async def on_kill(self) -> None:
        """End the application, where a person has cleared the task, or has marked it. Airflow calls this also where another
        triggerer has taken over: then the task is still deferred, and the application goes on."""
        await _uninterrupted(self._end_application())

    async def _end_application(self) -> None:
        application = Application(**self.application)
        try:
            if await self._is_deferred():
                self.log.info("application %s goes on: the task is deferred", application.id)
                return
            engine, cluster = await self._opened()
            with engine:
                self.log.info("application %s is ended", application.id)
                await asyncio.to_thread(cluster.end, application.id)
                file = JobFile(self._written().uri, engine.connections)
                await asyncio.to_thread(remove_key, file, cluster, application.attempt)
        except Exception as error:  # Airflow shows none of one that it has cancelled
            self.log.error("application %s may go on: %s: %s", application.id, type(error).__name__, error)
            raise

    async def _is_deferred(self) -> bool:
        task = self.task_instance
        assert task is not None, "the triggerer sets it"
        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=task.dag_id, task_ids=[task.task_id], run_ids=[task.run_id], map_index=task.map_index
        )
        return states.get(task.run_id, {}).get(task.task_id) == TaskInstanceState.DEFERRED

    def _for_airflow(self, engine: "Engine", application: Application) -> Application:
        """*application* as Airflow's database may keep it: diagnostics only where the driver itself has left no word."""
        try:
            JobFile(self._written().uri, engine.connections).outcome(application.attempt)
        except ArtifactNotFoundError:
            return application
        return application._replace(diagnostics="")

    def _written(self) -> WrittenJob:
        return msgspec.convert(self.job, WrittenJob)

    async def _leave(self, held: ExitStack, application: Application) -> None:
        """Leave what is *held* to whoever goes on."""
        self._holds = []
        over = HandedOverError(application.holder)
        await _uninterrupted(asyncio.to_thread(held.__exit__, HandedOverError, over, None))

    async def _begun(self, held: ExitStack) -> "tuple[Engine, Cluster]":
        """As ``_opened``; *held* is given what must be left at the end."""
        engine, cluster = await self._opened()
        await _uninterrupted(asyncio.to_thread(self._hold, held, engine))
        return engine, cluster

    def _hold(self, held: ExitStack, engine: "Engine") -> None:
        from ticdc_replay.stages.context import ReplayContext
        from ticdc_replay.stages.window.shared import decoding

        with ExitStack() as entered:
            entered.enter_context(engine)
            if isinstance(engine, ReplayContext):
                job = self._written()
                spec = JobFile(job.uri, engine.connections).read()
                if isinstance(spec, DecodeJob):
                    holder = Application(**self.application).holder
                    decode = decoding(engine, spec.manifest, job.run_hash, job.shared, holder=holder)
                    self._holds = entered.enter_context(decode)
            held.enter_context(entered.pop_all())

    async def _opened(self) -> "tuple[Engine, Cluster]":
        """The engine's context, and the cluster of its Spark connection."""
        engine = await self._engine()
        conn_id = engine.declared.connections.spark
        cluster = cluster_of((await resolve_in_trigger([conn_id], engine.declared))[conn_id])
        if cluster is None:
            raise ConfigError(f"connection {conn_id!r} is no longer of cluster mode, and an application runs there")
        return engine, cluster

    async def _engine(self) -> "Engine":
        if "pipeline_file" in self.files:
            from ticdc_replay.config.load import load_pipeline
            from ticdc_replay.stages.context import ReplayContext, connection_ids

            loaded = await asyncio.to_thread(load_pipeline, self.files["pipeline_file"])
            return ReplayContext(loaded, await resolve_in_trigger(connection_ids(loaded.pipeline), loaded.pipeline))
        from ticdc_replay.config.load_store import load_store
        from ticdc_replay.store_stages.context import StoreContext, store_connection_ids

        store = await asyncio.to_thread(load_store, self.files["store_file"], self.files["pipelines"])
        return StoreContext(store, await resolve_in_trigger(store_connection_ids(store), store.store))
