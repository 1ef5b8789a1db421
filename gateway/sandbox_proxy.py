"""The egress proxy of one sandbox: made from its network block, and served where its commands reach it.

Apart from `gateway.sandbox_session`, so that it and all of `gateway.egress` can be imported while a sandbox starts.
"""

import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from drivers.base import Sandbox
from drivers.spec import NetworkSpec
from gateway import egress
from gateway.egress.environment import SSH_CONNECT_PATH, make_token, proxy_environment
from gateway.egress.interfaces import host_addresses
from gateway.egress.limits import Limits
from gateway.egress.resolver import SystemResolver
from gateway.egress.server import EgressServer
from gateway.event_log import EventLog
from gateway.events import PolicyFindings
from policy.engine import Engine
from policy.lint import lint

__all__ = ["make_server", "serve_sandbox", "write_ssh_connect"]

LISTEN_BACKLOG: Final = 1024
PYTHON: Final = os.path.realpath(sys.executable)
"The interpreter itself, which is visible in a sandbox; the virtual environment around it may not be."
SSH_CONNECT_SOURCE: Final = Path(egress.__path__[0], "ssh_connect.py")


def make_server(
    network: NetworkSpec, events: EventLog, notify: Callable[[str], None], limits: Limits | None, *, node_id: str | None
) -> EgressServer:
    """Make the server that enforces a network block, and record what is odd about its policy.

    Args:
        network: a block whose mode is not open.
        events: the run's record.
        notify: shows one line to the person who started the run.
        limits: of the server; None for the usual ones.
        node_id: the node that has the sandbox for itself, for the record.

    Raises:
        PolicyError: the block's rules cannot be used.
    """
    policy = network.build_policy()
    findings = tuple(f"{finding.code}: {finding.message}" for finding in lint(policy))
    events.emit(
        PolicyFindings(mode=policy.mode.value, preset=network.preset, rules=len(policy.rules), findings=findings),
        node_id=node_id,
    )
    for finding in findings:
        notify(f"policy: {finding}")
    limits = limits or Limits()
    return EgressServer(
        Engine(policy, own_addresses=host_addresses()),
        SystemResolver(limits=limits, static_hosts=network.hosts),
        events,
        make_token(),
        limits,
        node_id=node_id,
    )


async def serve_sandbox(
    server: EgressServer, sandbox: Sandbox, nursery: trio.Nursery, *, enforced: bool
) -> Mapping[str, str]:
    """Serve the proxy where a sandbox's commands can reach it.

    Args:
        server: what serves.
        sandbox: has the listener, if egress is enforced.
        nursery: the server's; cancelling it drains the server.
        enforced: the sandbox has no other way out. Otherwise the proxy listens on the host's loopback address.

    Returns:
        The variables that lead commands to it.

    Raises:
        OSError: no listener can be had on the host.

    Cancellation before it serves closes the listener.
    """
    if enforced:
        listener = sandbox.listeners["proxy"]
        host, port = sandbox.proxy_endpoint
    else:
        listener = socket.create_server(("127.0.0.1", 0), backlog=LISTEN_BACKLOG)
        listener.setblocking(False)
        host, port = listener.getsockname()
    await nursery.start(server.serve, [listener])
    return proxy_environment(
        host=host,
        port=port,
        token=server.token or "",
        ssh_connect=f"{shlex.quote(PYTHON)} -I -S {SSH_CONNECT_PATH}" if enforced else None,
    )


async def write_ssh_connect(sandbox: Sandbox) -> None:
    """Put the program into a sandbox that leads ssh through the proxy.

    Raises:
        SandboxLost: the sandbox died.
        OSError: it cannot be written.
    """
    await sandbox.write_file(SSH_CONNECT_PATH, SSH_CONNECT_SOURCE.read_bytes(), 0o755)
