"""
A client of `writer serve` on one connection: it numbers its requests where it has a name.
"""

import asyncio
from dataclasses import dataclass


@dataclass
class Producer:
    """Of the table `events`; without a name its requests have no number."""

    port: int
    name: str = ""
    wait: str = "committed"
    sequence: int = 0
    _open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, sequence: int = 0) -> int:
        """
        The status of the answer; 0 where there is none. The sequence, if not another is given, rises with each answer
        below 300.
        """
        given = sequence or self.sequence + 1
        try:
            status = await self._post(body, given)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            self.close()
            return 0
        if 200 <= status < 300 and not sequence:
            self.sequence = given
        return status

    async def _post(self, body: bytes, sequence: int) -> int:
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._open
        named = f"Producer: {self.name}\r\nSequence: {sequence}\r\n" if self.name else ""
        head = f"POST /v1/tables/events/rows?wait={self.wait} HTTP/1.1\r\nHost: x\r\n{named}"
        head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(line for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        if b"connection: close" in answer:
            self.close()
        return int(answer.split()[1])

    def close(self) -> None:
        """The next request opens it again."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
