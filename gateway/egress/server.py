"""The egress server: accepts clients, gives each its session, and stops in good order.

Theory of operation
-------------------
``serve`` runs two scopes. The acceptors live in the caller's: they end when the caller cancels ``serve`` or calls
``stop``. The handlers (one task for each connection) and the relay live in a shielded one, which gets a deadline,
``drain_timeout_s`` away, in the moment the acceptors have ended. ``abort`` sets that deadline to now.

A handler is the one isolation boundary of its connection: a client that vanishes is nothing to speak of, a bug is
logged with its trace and ends that connection only, and cancellation passes.

Running out of descriptors must not turn into a busy loop, nor leave clients waiting in the backlog: one descriptor
is held in reserve, given up for as long as it takes to accept a client, tell it 503 and close it.
"""

import errno
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from gateway.egress.audit import Audit, Recorder
from gateway.egress.connect import LivePolicy
from gateway.egress.dial import keep_alive_options
from gateway.egress.http1 import Http1Limits, RequestHead, replies
from gateway.egress.limits import Limits
from gateway.egress.resolver import Resolver
from gateway.egress.session import Session
from gateway.egress.sockets import discard
from gateway.egress.stats import Stats
from gateway.egress.tunnel import Relay
from policy.engine import Engine

__all__ = ["EgressServer"]

NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
NO_MEMORY: Final = frozenset({errno.ENOBUFS, errno.ENOMEM})
STARVED_PAUSE_S: Final = 0.05
"How long an acceptor rests when it can do nothing for a client, not even refuse it."
DESCRIPTORS_A_CONNECTION: Final = 2


def log_to_stderr(text: str) -> None:
    """Write one message to standard error."""
    sys.stderr.write(f"{text}\n")


class EgressServer:
    """A forward proxy (CONNECT and plain HTTP) that lets through what its policy allows, and records it.

    Args:
        engine: the policy; see ``replace_engine``.
        resolver: how allowed names become addresses.
        events: the record of the run.
        token: what clients must show in Proxy-Authorization; None lets everybody in.
        limits: of everything.
        node_id: the workflow node whose sandbox this serves, for the record.
        log: gets the traces of bugs.
    """

    def __init__(
        self,
        engine: Engine,
        resolver: Resolver,
        events: Recorder,
        token: str | None,
        limits: Limits,
        *,
        node_id: str | None = None,
        log: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self.policy = LivePolicy(engine, limits.decision_cache_entries)
        self.resolver: Final = resolver
        self.token: Final = token
        self.token_bytes: Final = token.encode("ascii") if token is not None else None
        self.limits: Final = limits
        self.http1_limits: Final = Http1Limits(max_head_bytes=limits.max_head_bytes)
        self.known_heads: Final[dict[bytes, RequestHead]] = {}
        self.audit: Final = Audit(events, node_id)
        self.relay: Final = Relay(limits)
        self._log = log
        self._numbers = 0
        self._refusals = 0
        self._reserve_fd = -1
        self._serving = False
        self._aborted = False
        self._stopped = trio.Event()
        self._accepting = trio.CancelScope()
        self._handling = trio.CancelScope(shield=True)

    def __repr__(self) -> str:
        return f"<EgressServer with {self.stats.active} connections>"  # never the token

    @property
    def stats(self) -> Stats:
        """Counts for the summary; live."""
        return self.audit.stats

    def replace_engine(self, engine: Engine) -> None:
        """Judge by another policy from the next request on; open tunnels go on."""
        self.policy = LivePolicy(engine, self.limits.decision_cache_entries)

    def stop(self) -> None:
        """Accept nobody any more; ``serve`` returns when the open connections are over, or cut off."""
        self._accepting.cancel()

    def abort(self) -> None:
        """Like ``stop``, but cut the open connections off now."""
        self._aborted = True
        self._accepting.cancel()
        self._handling.cancel()

    async def serve(
        self, listeners: Sequence[socket.socket], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until stopped or cancelled; once in the life of a server.

        Args:
            listeners: bound, listening TCP sockets, perhaps of another network namespace. They are closed at the end.

        Returns after ``stop``, when the last connection is over.

        Cancellation does the same as ``stop`` first: for ``drain_timeout_s`` open connections may go on, shielded.
        """
        if self._serving:
            raise RuntimeError("this egress server has served already")
        self._serving = True
        self._open_reserve()
        try:
            for listener in listeners:
                listener.setblocking(False)
                for option in keep_alive_options(self.limits):
                    listener.setsockopt(*option)  # accepted sockets inherit these: five calls saved for each
            async with trio.open_nursery() as nursery:
                handlers = await nursery.start(self._handle)
                task_status.started()
                try:
                    with self._accepting:
                        async with trio.open_nursery() as acceptors:
                            for listener in listeners:
                                acceptors.start_soon(self._accept, listener, handlers)
                finally:
                    self._handling.deadline = trio.current_time() + self.limits.drain_timeout_s
                    self._stopped.set()
        finally:
            for listener in listeners:
                listener.close()
            self._close_reserve()
            self.relay.close()

    async def _handle(self, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """Run the relay and the handlers in the shielded scope, until stopped and the last handler has ended."""
        # If we are being cancelled, `start` waits for the end of this task, which its shield would put off for ever.
        await trio.lowlevel.checkpoint_if_cancelled()
        with self._handling:
            async with trio.open_nursery() as helpers:
                helpers.start_soon(self.relay.run)
                async with trio.open_nursery() as handlers:
                    task_status.started(handlers)
                    await self._stopped.wait()
                helpers.cancel_scope.cancel()

    async def _accept(self, listener: socket.socket, handlers: trio.Nursery) -> None:
        batch = self.limits.accept_batch
        stats = self.stats
        max_connections = self.limits.max_connections
        while True:
            await trio.lowlevel.wait_readable(listener)
            for _ in range(batch):
                try:
                    client, _ = listener.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if not await self._cannot_accept(listener, error):
                        break
                    continue
                if self._aborted:  # in the turn in which this task became ready: nobody is there to serve it
                    client.close()
                    break
                client.setblocking(False)
                if stats.active >= max_connections:
                    self.audit.saturated("connection cap", max_connections)
                    self._refuse(client, handlers)
                    continue
                self._numbers += 1
                stats.active += 1
                handlers.start_soon(self._connection, client, self._numbers)
            else:
                await trio.lowlevel.checkpoint()

    async def _connection(self, client: socket.socket, number: int) -> None:
        """One client, from accept to close; nothing but cancellation gets out of here."""
        try:
            await Session(client, number, self).run()
        except OSError:  # the client is gone; what was open has been recorded by the session
            pass
        except Exception:
            self._log(f"egress: a bug ended connection {number}:\n{traceback.format_exc()}")
        finally:
            client.close()
            self.stats.active -= 1
            if self.stats.active < self.limits.max_connections // 2:
                self.audit.relieved()

    # Limits reached

    def _refuse(self, client: socket.socket, handlers: trio.Nursery) -> None:
        """Answer 503 without a session. Few such clients are waited for; the rest gets what the kernel takes."""
        answer = replies.unavailable(
            f"it has {self.limits.max_connections} connections", retry_after_s=self.limits.retry_after_s
        )
        if self._refusals < self.limits.max_refusals:
            self._refusals += 1
            handlers.start_soon(self._refuse_slowly, client, answer)
        else:
            _send_and_close(client, answer)

    async def _refuse_slowly(self, client: socket.socket, answer: bytes) -> None:
        try:
            client.send(answer)
            await discard(client, self.limits.linger_timeout_s)
        except OSError:
            pass
        finally:
            client.close()
            self._refusals -= 1

    async def _cannot_accept(self, listener: socket.socket, error: OSError) -> bool:
        """Do what can be done about a failed accept; True to go on with the next client at once."""
        if error.errno in NO_DESCRIPTORS:
            self.audit.saturated("out of file descriptors", self.stats.active * DESCRIPTORS_A_CONNECTION)
            if self._reserve_fd >= 0:
                self._close_reserve()
                try:
                    client, _ = listener.accept()
                except OSError:
                    pass
                else:
                    client.setblocking(False)
                    _send_and_close(
                        client,
                        replies.unavailable("no file descriptors are left", retry_after_s=self.limits.retry_after_s),
                    )
                self._open_reserve()
            await trio.sleep(STARVED_PAUSE_S)
            return False
        if error.errno in NO_MEMORY:
            self.audit.saturated("out of memory", self.stats.active)
            await trio.sleep(STARVED_PAUSE_S)
            return False
        if error.errno in (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP):
            raise error  # the listener itself is of no use
        return True  # accept(2): errors of the one connection, already gone

    def _open_reserve(self) -> None:
        try:
            self._reserve_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._reserve_fd = -1

    def _close_reserve(self) -> None:
        if self._reserve_fd >= 0:
            os.close(self._reserve_fd)
            self._reserve_fd = -1


def _send_and_close(client: socket.socket, answer: bytes) -> None:
    """Take what has been sent (unread bytes would turn the close into a reset), answer, close; never wait."""
    with suppress(OSError):
        client.recv(1 << 16)
    with suppress(OSError):
        client.send(answer)
        client.shutdown(socket.SHUT_WR)
    client.close()
