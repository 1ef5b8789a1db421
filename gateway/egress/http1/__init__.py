"""HTTP/1 without I/O: strict heads, body framing, hop-by-hop rules and the proxy's own answers.

Bytes go in, values come out, and ``ProtocolError`` is the only exception.
"""

from gateway.egress.http1.credentials import token_matches
from gateway.egress.http1.errors import DEFAULT_LIMITS, Http1Limits, ProtocolError
from gateway.egress.http1.framing import Framing, FramingKind, Piece, body_decoder
from gateway.egress.http1.hop import forwarded_request, forwarded_response
from gateway.egress.http1.request import RequestHead, RequestHeadReader, parse_request_head
from gateway.egress.http1.response import ResponseHead, ResponseHeadReader, parse_response_head

__all__ = [
    "DEFAULT_LIMITS",
    "Framing",
    "FramingKind",
    "Http1Limits",
    "Piece",
    "ProtocolError",
    "RequestHead",
    "RequestHeadReader",
    "ResponseHead",
    "ResponseHeadReader",
    "body_decoder",
    "forwarded_request",
    "forwarded_response",
    "parse_request_head",
    "parse_response_head",
    "token_matches",
]
