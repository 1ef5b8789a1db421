"""The one error of the HTTP/1 parsers, and the limits they keep."""

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "Http1Limits", "ProtocolError"]


class ProtocolError(Exception):
    """A message that is not HTTP/1 as we accept it. The connection it came on is unusable from here on.

    Args:
        status: what to answer the client: 400, 408, 431, 501 or 505 for its own message, 502 for an upstream's.
        detail: a fixed text for a person. It never quotes the message, so it may be sent to anyone.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Http1Limits:
    """How much of one message may be head, chunk header or trailer. Bodies have no limit: they are not kept."""

    max_head_bytes: int = 65_536
    "A head, its first line and the empty line included."
    max_line_bytes: int = 32_768
    "One line of a head, without its CRLF."
    max_fields: int = 128
    "Header lines in one head."
    max_chunk_line_bytes: int = 4_096
    "A chunk's size and extension, without the CRLF."
    max_trailer_bytes: int = 16_384
    "All trailer lines of one body, the empty line included."
    max_interim_responses: int = 16
    "1xx answers to one request."
    read_bytes: int = 65_536
    "What is asked of a stream in one read."


DEFAULT_LIMITS = Http1Limits()
