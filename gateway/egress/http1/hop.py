"""What a forwarded head says: hop-by-hop fields out, ours in (RFC 9110 section 7.6).

Heads are written anew from what was parsed, never patched: what another parser reads is what this one understood.
Fields that the Connection header names are dropped as well, with two exceptions. Host and the framing fields are
always written by us, so naming them changes nothing; and fields we add are added after the removal, so that
``Connection: Via`` cannot take ours away.
"""

from gateway.egress.http1.fields import Headers
from gateway.egress.http1.framing import Framing, FramingKind
from gateway.egress.http1.request import RequestHead
from gateway.egress.http1.response import ResponseHead

__all__ = ["PSEUDONYM", "forwarded_request", "forwarded_response"]

PSEUDONYM = b"iterion-sandbox"
"How Via names us (RFC 9110 section 7.6.3): never by a host name, which would tell where the sandbox runs."

# RFC 9110 sections 7.6.1 and 11.7, and what was hop-by-hop in practice or in RFC 2068 and RFC 7540.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"upgrade",
    }
)
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_REQUEST_DROPPED = _HOP_BY_HOP | _FRAMING | {b"host"}
_RESPONSE_DROPPED = _HOP_BY_HOP | _FRAMING


def forwarded_request(head: RequestHead, *, keep_upstream: bool = True) -> bytes:
    """The head to send to the upstream.

    Args:
        head: the client's; not CONNECT.
        keep_upstream: whether another request may follow on the upstream connection.

    Returns:
        An HTTP/1.1 request head, with its empty line.
    """
    lines = [
        head.method + b" " + head.origin_target + b" HTTP/1.1",
        b"Host: " + head.host_field,
        *_end_to_end(head.headers, _REQUEST_DROPPED | head.connection),
    ]
    if head.minor == 0:  # RFC 9110 section 10.1.1: such a client cannot wait for 100
        lines = [line for line in lines if not line.lower().startswith(b"expect:")]
    lines += _framing(head.framing)
    options = [] if keep_upstream or head.upgrade else [b"close"]
    if head.accepts_trailers:
        lines.append(b"TE: trailers")
        options.append(b"TE")
    if head.upgrade:
        lines.append(b"Upgrade: " + head.upgrade)
        options.append(b"Upgrade")
    if options:
        lines.append(b"Connection: " + b", ".join(options))
    lines += [_via(head.minor), b"", b""]
    return b"\r\n".join(lines)


def forwarded_response(head: ResponseHead, *, client_minor: int, keep_client: bool) -> bytes:
    """The head to send to the client.

    Args:
        head: the upstream's.
        client_minor: the minor version of the client's request. An HTTP/1.0 client gets no Transfer-Encoding: its
            body must be sent without chunk framing and ended by closing.
        keep_client: whether the client may send another request on its connection.

    Returns:
        An HTTP/1.1 response head, with its empty line.
    """
    lines = [
        b"HTTP/1.1 %d %s" % (head.status, head.reason),
        *_end_to_end(head.headers, _RESPONSE_DROPPED | head.connection),
    ]
    bodiless = head.status < 200 or head.status == 204  # RFC 9110 section 8.6: neither field may stand here
    dechunked = client_minor == 0 and head.declared is not None and head.declared.kind is FramingKind.CHUNKED
    if head.declared is not None and not bodiless and not dechunked:
        lines += _framing(head.declared)
    if head.upgrade:
        lines += [b"Upgrade: " + head.upgrade, b"Connection: Upgrade"]
    elif not keep_client and head.status >= 200:
        lines.append(b"Connection: close")
    lines += [_via(head.minor), b"", b""]
    return b"\r\n".join(lines)


def _end_to_end(headers: Headers, dropped: frozenset[bytes]) -> list[bytes]:
    return [name + b": " + value for name, value in headers if name.lower() not in dropped]


def _framing(framing: Framing) -> list[bytes]:
    match framing.kind:
        case FramingKind.LENGTH:
            return [b"Content-Length: %d" % framing.length]
        case FramingKind.CHUNKED:
            return [b"Transfer-Encoding: chunked"]
        case _:
            return []


def _via(minor: int) -> bytes:
    return b"Via: 1.%d %s" % (minor, PSEUDONYM)
