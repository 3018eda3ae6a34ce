"""One POST and its answer. Nothing that it says or logs shows an address beyond the host, or a key."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib.metadata import version
from urllib.parse import urlsplit

import httpx

from diagnose.alerts.receiver import Again, Answer, Post, judge
from diagnose.alerts.secret import SHOWN
from diagnose.report.plain import prose

TIMEOUT = 10.0
"""s for one POST from the look-up of the name to the answer's end: Alertmanager's and Slack's own services answer in tens of milliseconds,
and a receiver that drips is cut off too, which timeouts of single reads would not do."""

HEARD = 300
"""Bytes of an answer that are read: enough for the reason that it gives."""


class _HostOnly(logging.Filter):
    """httpx logs the whole address of each request at INFO, and Slack's is a key."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(f"{a.scheme}://{a.host}/{SHOWN}" if isinstance(a, httpx.URL) else a for a in record.args)
        return True


_HOST_ONLY = _HostOnly()


class Sender:
    """Sends posts. Follows no redirect: an alert goes where it was configured to go."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        logging.getLogger("httpx").addFilter(_HOST_ONLY)  # the same object, so that many senders add one
        self._timeout = timeout
        agent = {"user-agent": f"slowrank/{version('slowrank')}", "accept-encoding": "identity"}
        # a connection per post: posts are rare, and a kept one that the other side closed costs a try
        self._client = httpx.AsyncClient(timeout=timeout, headers=agent, limits=httpx.Limits(max_keepalive_connections=0))

    async def send(self, post: Post) -> Answer:
        """What became of it. Never raises for what the other side or the network does."""
        host = urlsplit(post.url.reveal()).netloc.rpartition("@")[2]
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send(post, host)
        except TimeoutError:
            return Again(f"{host} did not answer within {self._timeout:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Again(f"{host} cannot be reached ({_hidden(type(error).__name__ + ': ' + str(error), post)})")

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def _send(self, post: Post, host: str) -> Answer:
        heard = b""
        async with self._client.stream("POST", post.url.reveal(), content=post.body, headers=dict(post.headers)) as response:
            async for chunk in response.aiter_raw():
                heard += chunk
                if len(heard) >= HEARD:
                    break
        headers = {name.lower(): value for name, value in response.headers.items()}
        text = _hidden(heard[:HEARD].decode("utf-8", "replace"), post)
        return judge(response.status_code, headers, text, time.time(), host)


def _hidden(text: str, post: Post) -> str:
    for secret in (post.url, *post.secrets):
        text = text.replace(secret.reveal(), SHOWN)
    return prose(text, HEARD)
