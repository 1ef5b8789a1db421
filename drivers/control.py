"""The gateway's half of the conversation with a sandbox's init, without any I/O.

The protocol is described at the top of `sandbox_init.py`. What init sends is trusted no further than it must be:
every message is bounded, has one of five shapes, and anything else is a `ProtocolError` that costs the sandbox.
"""

from collections.abc import Mapping, Sequence

import msgspec

from drivers.base import ExitStatus, ProbeTarget

MAX_REPLY_BYTES = 4096
MAX_INLINE_BYTES = 32768
"""A longer request travels in a memfd: a packet is bounded by the socket's send buffer, an environment is not."""
MAX_DETAIL_CHARACTERS = 200


class ProtocolError(Exception):
    """The other side sent something that init never sends."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Init runs; its listeners came along."""


class Fatal(msgspec.Struct, frozen=True, kw_only=True):
    """Init cannot run."""

    detail: str


class Exited(msgspec.Struct, frozen=True, kw_only=True):
    """A command ended."""

    identity: int
    status: ExitStatus


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """A command's process tree was killed, but for `remaining` processes that would not die."""

    identity: int
    remaining: int


class Wrote(msgspec.Struct, frozen=True, kw_only=True):
    """A file was written, if there is no error."""

    identity: int
    error: str


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """One probe has its result."""

    identity: int
    index: int
    reached: bool
    detail: str


Reply = Ready | Fatal | Exited | Killed | Wrote | Probed


def encode_exec(identity: int, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, terminal: bool) -> bytes:
    """A request to run a command.

    :raises ValueError: a text holds NUL, or a variable's name `=`, or there is no argument.
    """
    if not argv or not argv[0]:
        raise ValueError("there is no command")
    for name in env:
        if not name or "=" in name:
            raise ValueError(f"{name!r} cannot be the name of a variable")
    variables = [f"{name}={value}" for name, value in env.items()]
    return join("exec", str(identity), cwd, "terminal" if terminal else "pipes", str(len(argv)), *argv, *variables)


def encode_kill(identity: int) -> bytes:
    """A request to kill a command's process tree."""
    return join("kill", str(identity))


def encode_signal(identity: int, number: int) -> bytes:
    """A request to send a signal to a command."""
    return join("signal", str(identity), str(number))


def encode_write(identity: int, path: str, mode: int) -> bytes:
    """A request to write a file.

    :raises ValueError: the path holds NUL.
    """
    return join("write", str(identity), path, f"{mode & 0o7777:o}")


def encode_probe(identity: int, seconds: float, targets: Sequence[ProbeTarget]) -> bytes:
    """A request to try ways out."""
    texts = [f"{target.kind} {target.address} {target.port}" for target in targets]
    return join("probe", str(identity), str(seconds), *texts)


def join(*fields: str) -> bytes:
    """Frame a request. Names of files and arguments may be any bytes: `surrogateescape` brings them back."""
    for field in fields:
        if "\0" in field:
            raise ValueError(f"{field[:40]!r} holds a NUL byte")
    return "\0".join(fields).encode(errors="surrogateescape")


def parse_reply(data: bytes) -> Reply:
    """Read one message of init.

    :raises ProtocolError: it is none.
    """
    if len(data) > MAX_REPLY_BYTES:
        raise ProtocolError("a message is too long")
    fields = data.decode("utf-8", errors="replace").split("\0")
    match fields:
        case ["ready"]:
            return Ready()
        case ["fatal", detail]:
            return Fatal(detail=clean(detail))
        case ["exit", identity, "code", code]:
            return Exited(identity=number(identity), status=ExitStatus(code=number(code, 255)))
        case ["exit", identity, "signal", signal]:
            return Exited(identity=number(identity), status=ExitStatus(signal=number(signal, 127)))
        case ["killed", identity, remaining]:
            return Killed(identity=number(identity), remaining=number(remaining))
        case ["wrote", identity, error]:
            return Wrote(identity=number(identity), error=clean(error))
        case ["probe", identity, index, reached, detail]:
            return Probed(
                identity=number(identity),
                index=number(index, 1000),
                reached=number(reached, 1) == 1,
                detail=clean(detail),
            )
        case _:
            raise ProtocolError(f"not a message: {clean(fields[0])}")


def number(text: str, maximum: int = 2**53) -> int:
    """A plain decimal number up to `maximum`."""
    if not (text.isascii() and text.isdigit() and len(text) <= 16) or int(text) > maximum:
        raise ProtocolError(f"not a number up to {maximum}: {clean(text)}")
    return int(text)


def clean(text: str) -> str:
    """A text from inside, fit for a message: short, on one line, without escape sequences."""
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_DETAIL_CHARACTERS])
