"""What must hold for any bytes at all that a tunnel may begin with, for Hypothesis, the fuzzer and the examples."""

from collections.abc import Iterator

from gateway.egress.client_hello import ClientHelloReader, HelloError, HelloResult

MAX_BYTES = 65_536


def read(pieces: Iterator[bytes], max_bytes: int = MAX_BYTES) -> HelloResult | str | None:
    """Return the reader's answer, its error, or None where the pieces were not enough."""
    reader = ClientHelloReader(max_bytes)
    try:
        for piece in pieces:
            if (result := reader.feed(piece)) is not None:
                return result
    except HelloError:
        return "error"
    return None


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def check_every_way(data: bytes, max_bytes: int = MAX_BYTES) -> HelloResult | str | None:
    """Feed data whole, byte by byte and in between; the answers must agree."""
    answers = {read(cut(data, size), max_bytes) for size in (max(1, len(data)), 1, 2, 3, 7, 100)}
    assert len(answers) == 1, answers
    return answers.pop()
