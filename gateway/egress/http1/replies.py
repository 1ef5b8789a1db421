"""The proxy's own answers.

They are made of fixed texts, a reason code and the host the client asked for: no header of the request, no
exception text and no path of this machine gets into them. Each announces and requires the end of the connection.
"""

import codecs

from gateway.egress.http1.errors import ProtocolError

__all__ = [
    "CONNECTION_ESTABLISHED",
    "REALM",
    "bad_gateway",
    "bad_request",
    "blocked",
    "gateway_timeout",
    "printable",
    "proxy_authentication_required",
    "reply",
    "request_timeout",
    "unavailable",
]

CONNECTION_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
"Opens a tunnel. No header fields: a 2xx to CONNECT has no body, and some clients trip over Content-Length."

REALM = "iterion-sandbox"

_MAX_SHOWN_CHARACTERS = 300
# Looked up now: the codec is a module of its own, and no descriptor may be left to load it when 503 is to be said.
_ESCAPED = codecs.lookup("unicode_escape").encode

_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}


def printable(text: str, *, limit: int = _MAX_SHOWN_CHARACTERS) -> str:
    """Text that is safe in a header, a log line and a terminal.

    Args:
        text: anything.
        limit: the most characters of it to show.

    Returns:
        Visible ASCII and single spaces; whatever else there was is escaped, what is too long is cut.
    """
    shown = _ESCAPED(text[:limit])[0].decode("ascii")
    return shown if len(text) <= limit else shown + "..."


def reply(status: int, text: str, *, fields: tuple[tuple[str, str], ...] = (), head_only: bool = False) -> bytes:
    """One complete answer.

    Args:
        status: one of 400, 403, 407, 408, 431, 501, 502, 503, 504, 505.
        text: the body, for a person or an agent; escaped where it is not printable.
        fields: further header fields; values are escaped.
        head_only: leave the body out, for HEAD.

    Returns:
        Head and body. The connection must be closed after them.
    """
    body = f"{printable(text, limit=4 * _MAX_SHOWN_CHARACTERS)}\n".encode("ascii")
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        *(f"{name}: {printable(value)}" for name, value in fields),
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
    return head if head_only else head + body


def bad_request(error: ProtocolError, *, head_only: bool = False) -> bytes:
    """What a client is told about its own malformed message, or (502) about an upstream's."""
    if error.status == 502:
        return bad_gateway(error.detail, head_only=head_only)
    return reply(error.status, f"refused by the sandbox proxy: {error.detail}", head_only=head_only)


def blocked(authority: str, code: str, *, head_only: bool = False) -> bytes:
    """403: policy denies the host.

    Args:
        authority: ``host:port`` as judged, or as asked for where it is no host.
        code: the reason's code.
        head_only: leave the body out, for HEAD.
    """
    text = f"blocked by sandbox network policy: {authority[:_MAX_SHOWN_CHARACTERS]} ({code})"
    return reply(403, text, fields=(("X-Iterion-Reason", code),), head_only=head_only)


def proxy_authentication_required(*, head_only: bool = False) -> bytes:
    """407: no token, or not this run's."""
    challenge = (("Proxy-Authenticate", f'Basic realm="{REALM}"'),)
    return reply(407, "the sandbox proxy needs the token of this run", fields=challenge, head_only=head_only)


def request_timeout() -> bytes:
    """408: the request did not arrive in time."""
    return reply(408, "the request did not arrive in time")


def bad_gateway(detail: str, *, head_only: bool = False) -> bytes:
    """502: the upstream cannot be reached, or its answer is not HTTP/1.

    Args:
        detail: what is wrong with it, without exception text.
        head_only: leave the body out, for HEAD.
    """
    return reply(502, f"the upstream failed: {detail}", head_only=head_only)


def unavailable(detail: str, *, retry_after_s: int, head_only: bool = False) -> bytes:
    """503: the gateway is at one of its limits.

    Args:
        detail: which limit.
        retry_after_s: when to come back, in seconds.
        head_only: leave the body out, for HEAD.
    """
    text = f"the sandbox proxy is busy: {detail}"
    return reply(503, text, fields=(("Retry-After", str(retry_after_s)),), head_only=head_only)


def gateway_timeout(detail: str, *, head_only: bool = False) -> bytes:
    """504: the upstream did not answer in time.

    Args:
        detail: what was waited for, without exception text.
        head_only: leave the body out, for HEAD.
    """
    return reply(504, f"the upstream is too slow: {detail}", head_only=head_only)
