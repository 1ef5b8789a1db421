"""Collects bytes until a message head is complete, refusing at the first byte that cannot be one.

The answer does not depend on how the bytes were cut: every rule here is decided at a fixed position of the
input. That is why a bare LF is looked for before the length is judged, and never beyond ``max_head_bytes``.
"""

import re

from gateway.egress.http1.errors import ProtocolError

__all__ = ["HeadBuffer"]

_END = b"\r\n\r\n"
_BARE_LF = re.compile(rb"(?<!\r)\n")


class HeadBuffer:
    """One head, from its first byte to the empty line.

    Args:
        max_bytes: the longest head, its empty line included.
        first_bytes: what a head may start with. Anything else is refused at once: a TLS or SOCKS client would
            otherwise wait for an answer until the deadline.
        skip_crlf: ignore one empty line before the head (RFC 9112 section 2.2, for requests).
    """

    __slots__ = ("_buffer", "_first_bytes", "_max_bytes", "_scanned", "_skip_crlf", "leftover")

    def __init__(self, max_bytes: int, first_bytes: frozenset[int], *, skip_crlf: bool) -> None:
        self._max_bytes = max_bytes
        self._first_bytes = first_bytes
        self._skip_crlf = skip_crlf
        self._buffer = bytearray()
        self._scanned = 0
        self.leftover = b""

    @property
    def started(self) -> bool:
        """Whether any byte of a head has arrived, an empty line before it aside."""
        return bool(self._buffer) and self._buffer != b"\r"

    def feed(self, data: bytes) -> bytes | None:
        """Take more input.

        Args:
            data: the next bytes, empty to ask again.

        Returns:
            The head without its empty line, once; ``leftover`` then holds what followed it. None while incomplete.

        Raises:
            ProtocolError: 400 or 431. The buffer is of no use afterwards.
        """
        if not self._buffer and data and data[0] in self._first_bytes:  # nearly always: the head in one read
            end = data.find(_END, 0, self._max_bytes)
            head = data[: max(end, 0)]
            if head and head.count(b"\n") == head.count(b"\r\n"):
                self.leftover = data[end + 4 :]
                return head
        return self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> bytes | None:
        buffer = self._buffer
        buffer += data
        if self._skip_crlf and len(buffer) >= 2:
            self._skip_crlf = False
            if buffer.startswith(b"\r\n"):
                del buffer[:2]
        if not buffer or (self._skip_crlf and buffer == b"\r"):
            return None
        if buffer[0] not in self._first_bytes:
            raise ProtocolError(400, "the first byte is not the start of an HTTP/1 message (TLS or SOCKS, perhaps)")
        end = buffer.find(_END, max(0, self._scanned - 3), self._max_bytes)
        region_end = self._max_bytes if end < 0 else end
        if _BARE_LF.search(buffer, self._scanned, region_end):
            raise ProtocolError(400, "a line of the head ends in a bare LF")
        if end < 0:
            if len(buffer) > self._max_bytes:
                raise ProtocolError(431, f"the head is longer than {self._max_bytes} bytes")
            self._scanned = len(buffer)
            return None
        self.leftover = bytes(buffer[end + 4 :])
        return bytes(buffer[:end])
