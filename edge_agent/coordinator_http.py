"""Content to and from the coordinator over signed HTTP: get with ranges, put, ask. Owns the requests only.

Every answer that is not a plain yes or no is an error of one of two kinds: try again later, or nobody has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from skerry.errors import BlobNotFound, CoordinatorUnreachable
from skerry.http import trusting
from skerry.identity import PrivateKey
from skerry.signed_http import signed_headers

CHUNK_BYTES = 256 * 1024
CONNECT_S = 10.0
#: A transfer that brings nothing for this long is begun again, seconds.
SILENCE_S = 20.0


class CoordinatorContent:
    """The coordinator's content store as a node uses it. One session of kept connections."""

    def __init__(self, url: str, *, node: str, key: PrivateKey, ca: Path | None = None) -> None:
        """url: of the coordinator's HTTP interface.  Raises SettingsError when the CA file cannot be used."""
        self._url = url.rstrip("/")
        self._node = node
        self._key = key
        self._tls = trusting(ca) if self._url.startswith("https") else None
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    @asynccontextmanager
    async def get(self, name: str, offset: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open content from an offset on and yield its chunks.

        Raises BlobNotFound when the coordinator does not have it, CoordinatorUnreachable otherwise.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        async with self._request("GET", name, headers=headers) as response:
            if response.status == 416:  # everything was received before the connection broke
                yield _nothing()
                return
            if offset and response.status != 206:
                raise CoordinatorUnreachable(f"{self._url} does not go on at byte {offset} of {name}")
            yield response.content.iter_chunked(CHUNK_BYTES)

    async def has(self, name: str) -> bool:
        """Ask whether the coordinator has the content.  Raises CoordinatorUnreachable."""
        try:
            async with self._request("HEAD", name):
                return True
        except BlobNotFound:
            return False

    async def put(self, name: str, path: Path) -> None:
        """Send a verified file.  Raises CoordinatorUnreachable when it was not taken."""
        size = (await asyncio.to_thread(path.stat)).st_size
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        async with self._request("PUT", name, headers=headers, data=_chunks(path)):
            return

    async def close(self) -> None:
        """Close the kept connections."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        name: str,
        *,
        headers: dict[str, str] | None = None,
        data: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        path = f"/v1/blobs/{name}"
        signed = signed_headers(self._key, self._node, method, path)
        try:
            async with self._opened().request(
                method,
                f"{self._url}{path}",
                headers={**signed, **(headers or {})},
                data=data,
                ssl=self._tls or True,
            ) as response:
                await _check(response, name, self._url)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise CoordinatorUnreachable(f"{self._url} cannot be reached: {why}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session


async def _check(response: aiohttp.ClientResponse, name: str, url: str) -> None:
    if response.status < 400 or response.status == 416:
        return
    if response.status == 404:
        raise BlobNotFound(f"neither this node nor the coordinator has {name}")
    text = (await response.text())[:300]
    raise CoordinatorUnreachable(f"{url} answered {response.status} for {name}: {text}")


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
    finally:
        file.close()


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in tuple[bytes, ...]():
        yield chunk
