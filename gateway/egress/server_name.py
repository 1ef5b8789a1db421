"""In pass-through mode, a TLS tunnel must ask for the host that it was opened to."""

from typing import Final

from gateway.egress.client_hello import ClientHelloReader, HelloError, HelloKind
from gateway.egress.pump import GateRefused
from policy.host import Host, InvalidHost, parse_host

__all__ = ["INVALID", "MISMATCH", "MISSING", "ServerNameGate"]

MISMATCH: Final = "server_name_mismatch"
MISSING: Final = "server_name_missing"
INVALID: Final = "client_hello_invalid"


class ServerNameGate:
    """Lets a tunnel's first bytes pass if they are not TLS, or a ClientHello that names the tunnel's host.

    Names are compared as policy reads them (case, one trailing dot, IDNA). A ClientHello that names nobody
    passes only if the tunnel leads to an address, which policy then has allowed as such.

    Args:
        host: where the tunnel leads.
        max_bytes: the longest ClientHello.
    """

    __slots__ = ("_host", "_reader")

    def __init__(self, host: Host, max_bytes: int) -> None:
        self._host = host
        self._reader = ClientHelloReader(max_bytes)

    def feed(self, data: memoryview) -> bool:
        """Take the next bytes; see ``Gate.feed``."""
        try:
            hello = self._reader.feed(data)
        except HelloError as error:
            raise GateRefused(INVALID, error.detail) from None
        if hello is None:
            return False
        if hello.kind is HelloKind.TLS:
            self._compare(hello.server_name)
        return True

    def ended(self) -> None:
        """The client ended while undecided: inside its ClientHello, or after so little that it may be anything."""
        if self._reader.is_hello:
            raise GateRefused(INVALID, "the client ended inside its ClientHello")

    def _compare(self, name: str | None) -> None:
        if name is None:
            if not self._host.is_address:
                raise GateRefused(MISSING, f"the ClientHello names no server; the tunnel leads to {self._host}")
            return
        try:
            named = parse_host(name)
        except InvalidHost as error:
            raise GateRefused(INVALID, f"the server name {error}") from None
        if named != self._host:
            raise GateRefused(MISMATCH, f"the ClientHello names {named}; the tunnel leads to {self._host}")
