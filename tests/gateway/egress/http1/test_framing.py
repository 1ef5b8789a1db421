"""Body framing: nothing is passed on before its framing was valid, and the end is where everyone sees it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.egress.http1 import DEFAULT_LIMITS, Framing, FramingKind, Http1Limits, Piece, ProtocolError, body_decoder
from gateway.egress.http1.framing import CHUNKED, NO_BODY, UNTIL_CLOSE, known_length
from tests.gateway.egress.http1.properties import SMALL, check_chunked, decode_chunked, ways_to_cut

FRAGMENTS = st.sampled_from(
    [
        b"0",
        b"3",
        b"a",
        b"A",
        b"\r\n",
        b"\r",
        b"\n",
        b";",
        b';a="b"',
        b"abc",
        b"X: y",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
    ]
)
BODIES = st.one_of(st.binary(max_size=100), st.lists(FRAGMENTS, max_size=20).map(b"".join))


def test_a_known_length_ends_where_it_says() -> None:
    decoder = body_decoder(known_length(5), DEFAULT_LIMITS)
    assert decoder.feed(b"abc") == [Piece(b"abc", True)]
    assert decoder.feed(b"") == []
    assert decoder.leftover == b""
    assert decoder.feed(b"deGET") == [Piece(b"de", True)]
    assert decoder.complete
    assert decoder.leftover == b"GET"
    decoder.feed_eof()


def test_the_end_of_input_inside_a_known_length_is_an_error() -> None:
    decoder = body_decoder(known_length(5), DEFAULT_LIMITS)
    decoder.feed(b"abcd")
    with pytest.raises(ProtocolError, match="known length"):
        decoder.feed_eof()


@pytest.mark.parametrize("framing", [NO_BODY, Framing(FramingKind.LENGTH, 0)])
def test_no_body_is_complete_from_the_start(framing: Framing) -> None:
    decoder = body_decoder(framing, DEFAULT_LIMITS)
    assert decoder.complete
    decoder.feed_eof()


def test_a_body_until_close_ends_with_its_input() -> None:
    decoder = body_decoder(UNTIL_CLOSE, DEFAULT_LIMITS)
    assert decoder.feed(b"abc") == [Piece(b"abc", True)]
    assert decoder.feed(b"") == []
    complete = [decoder.complete]
    decoder.feed_eof()
    complete.append(decoder.complete)
    assert complete == [False, True]


@pytest.mark.parametrize(
    ("wire", "payload"),
    [
        (b"0\r\n\r\n", b""),
        (b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"003\r\nabc\r\n000\r\n\r\n", b"abc"),
        (b"A\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n", b"0123456789\n"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        (b"0000000000000003\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b'1;a\r\nx\r\n1;a=b;c="d"\r\ny\r\n0 ; e\r\n\r\n', b"xy"),
        (b"1\r\nx\r\n0\r\nServer-Timing: a\r\nETag:\r\n\r\n", b"x"),
    ],
)
def test_chunked_bodies(wire: bytes, payload: bytes) -> None:
    assert check_chunked(wire + b"GET ", (1, 2, 3, 4)) == ("complete", None, wire, payload, b"GET ")


def test_framing_is_given_back_only_as_whole_valid_lines() -> None:
    decoder = body_decoder(CHUNKED, DEFAULT_LIMITS)
    assert decoder.feed(b"3;a=") == []
    assert decoder.feed(b"b\r\nab") == [Piece(b"3;a=b\r\n", False), Piece(b"ab", True)]
    assert decoder.feed(b"c\r") == [Piece(b"c", True)]
    assert decoder.feed(b"\n0\r\n\r") == [Piece(b"\r\n", False), Piece(b"0\r\n", False)]
    assert decoder.feed(b"\nx") == [Piece(b"\r\n", False)]
    assert decoder.complete
    assert decoder.leftover == b"x"


def test_a_large_chunk_is_passed_on_without_a_copy() -> None:
    decoder = body_decoder(CHUNKED, DEFAULT_LIMITS)
    decoder.feed(b"100000\r\n")
    data = bytes(65536)
    assert decoder.feed(data)[0].data is data


H25 = {
    "no CRLF after data": b"3\r\nabcd\r\n",
    "no CR after data": b"3\r\nabc\n0\r\n\r\n",
    "CR and another byte after data": b"3\r\nabc\rX",
    "size too small": b"3\r\nabcdef\r\n0\r\n\r\n",
    "bare LF after the size": b"3\nabc\r\n",
    "bare LF in an extension": b"3;a\nb\r\nabc\r\n",
    "bare LF in a quoted extension": b'3;a="\n"\r\nabc\r\n',
    "bare CR in an extension": b"3;a\rb\r\nabc\r\n",
    "NUL in an extension": b"3;a\0\r\nabc\r\n",
    "unfinished quotes": b'3;a="b\r\nabc\r\n',
    "text behind quotes": b'3;a="b"c\r\nabc\r\n',
    "an empty extension": b"3;\r\nabc\r\n",
    "plus": b"+3\r\nabc\r\n",
    "minus": b"-3\r\nabc\r\n",
    "0x": b"0x3\r\nabc\r\n",
    "underscore": b"0_3\r\nabc\r\n",
    "17 digits": b"00000000000000003\r\nabc\r\n",
    "64 bits": b"8000000000000000\r\n",
    "space before the size": b" 3\r\nabc\r\n",
    "space after the size": b"3 \r\nabc\r\n",
    "no size": b"\r\nabc\r\n",
    "an extension only": b";a\r\nabc\r\n",
    "not hexadecimal": b"g\r\n",
    "a size line that does not end": b"0" * 23,
    "an extension that does not end": b"3;" + b"a" * 30,
    "a bare LF first": b"\n",
    "bare LF in the trailers": b"0\r\nA: b\n\r\n",
    "bare LF ends the trailers": b"0\r\n\n",
    "bare CR in a trailer": b"0\r\nA: b\rc\r\n\r\n",
    "a folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
    "a trailer without a colon": b"0\r\nA\r\n\r\n",
    "a trailer with a space before its colon": b"0\r\nA : b\r\n\r\n",
    "NUL in a trailer": b"0\r\nA: \0\r\n\r\n",
    "a long trailer": b"0\r\nA: " + b"b" * 60,
    "many trailers": b"0\r\n" + b"A: b\r\n" * 10 + b"\r\n",
    "Content-Length as a trailer": b"0\r\nContent-Length: 5\r\n\r\n",
    "Transfer-Encoding as a trailer": b"0\r\nTRANSFER-ENCODING: chunked\r\n\r\n",
    "Host as a trailer": b"0\r\nhost: a\r\n\r\n",
    "Authorization as a trailer": b"0\r\nAuthorization: a\r\n\r\n",
    "Set-Cookie as a trailer": b"0\r\nSet-Cookie: a\r\n\r\n",
}


@pytest.mark.parametrize("name", H25)
def test_H25_malformed_chunks(name: str) -> None:
    kind, error, *_ = check_chunked(H25[name], (1, 3, 2))
    assert kind == "error"
    assert isinstance(error, tuple)
    assert error[0] == 400


def test_the_limits_are_exact() -> None:
    limits = Http1Limits(max_chunk_line_bytes=5, max_trailer_bytes=8)
    assert decode_chunked([b"1;abc\r\nx\r\n0\r\n\r\n"], limits)[0] == "complete"
    assert decode_chunked([b"1;abcd\r\nx\r\n0\r\n\r\n"], limits)[0] == "error"
    assert decode_chunked([b"0\r\nA: b\r\n\r\n"], limits)[0] == "complete"
    assert decode_chunked([b"0\r\nA: bc\r\n\r\n"], limits)[0] == "error"


@given(BODIES, st.lists(st.integers(1, 20), max_size=10))
@example(b"0\r\n" + b"A: b\r\n" * 9 + b"A:b\r\n" + b"\r\n", [])
@example(b"3\r\nabcX\n", [])
def test_any_bytes(data: bytes, sizes: list[int]) -> None:
    check_chunked(data, sizes)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.lists(st.integers(1, 20), max_size=10))
def test_any_chunks_are_passed_on_as_they_came(chunks: list[bytes], sizes: list[int]) -> None:
    wire = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    assert check_chunked(wire, sizes) == ("complete", None, wire, b"".join(chunks), b"")


@given(st.binary(max_size=100), st.integers(0, 60), st.lists(st.integers(1, 20), max_size=10))
def test_any_known_length(data: bytes, length: int, sizes: list[int]) -> None:
    for parts in ways_to_cut(data, sizes):
        decoder = body_decoder(known_length(length), SMALL)
        passed = b""
        while parts and not decoder.complete:
            passed += b"".join(piece.data for piece in decoder.feed(parts.pop(0)))
        assert passed == data[:length]
        assert decoder.complete is (len(data) >= length)
        assert decoder.leftover + b"".join(parts) == data[length:]
