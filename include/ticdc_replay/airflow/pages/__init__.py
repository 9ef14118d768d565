"""The pages that the plugin adds to Airflow's UI.

``app`` is what Airflow mounts. It loads the pages when the first request comes: plugins are imported by every process of
Airflow, and only the API server has use for them.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

URL_PREFIX = "/ticdc-replay"


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """The pages, as an ASGI application."""
    from ticdc_replay.airflow.pages.site import app as pages

    await pages(scope, receive, send)
