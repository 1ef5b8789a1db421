"""Where in the file system unix sockets of this host are bound.

A read-only mount does not keep anybody from connecting to a socket in it, and whatever listens there runs outside: an
engine that starts containers, an agent that signs, a proxy without a policy. Datagram sockets count as well: they
receive without listening.

Limits: a socket bound under a relative name cannot be found, and neither can one that is bound later, while the
sandbox runs. The directories where services put theirs (/run, /tmp, homes) are private for that reason.
"""

import os
import re
from pathlib import Path

SOCKET_LINE = re.compile(r"[0-9a-f]+: [0-9A-F]{8} [0-9A-F]{8} [0-9A-F]{8} [0-9A-F]{4} [0-9A-F]{2} +[0-9]+ (/.+)")
"""proc(5), /proc/net/unix: slot, references, protocol, flags, type, state, inode, path. `@` starts an abstract name."""


def bound_sockets(table: str = "/proc/net/unix") -> tuple[str, ...]:
    """The real paths of every unix socket that is bound to a name in the file system."""
    try:
        lines = Path(table).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ()
    names = {match.group(1) for line in lines if (match := SOCKET_LINE.fullmatch(line))}
    return tuple(sorted({os.path.realpath(name) for name in names}))
