"""Files of the system that not everybody may read, found by their modes.

A sandbox of root's has root's user id, and with it what root owns: no capability is needed for that. The list of known
secrets in `host_paths.py` names what every system has; what an administrator put into /etc, and services into /var, is
on no list. So for root those trees are looked through, and whatever others may not read is hidden.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

SEARCHED = (
    ("/etc", 8),
    ("/var/lib", 2),
    ("/var/log", 3),
    ("/var/cache", 2),
    ("/var/spool", 2),
    ("/var/opt", 3),
    ("/usr/local/etc", 4),
)
"""Where, and how deep. Deeper down, services keep data by the million, mostly below a directory that is private. /opt
and /usr are not among them: what is installed there has to run, whatever the umask of who installed it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateFile:
    """Something that others may not read."""

    path: str
    is_directory: bool


def private_files(tree: str, depth: int) -> Iterator[PrivateFile]:
    """Find what this process's user and groups may read below `tree` and others may not.

    :param depth: how many levels are looked at.

    What is found is not descended into; links, sockets and devices are passed over, and so is what cannot be listed.
    """
    user, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    queue = [(tree, 1)]
    while queue:
        folder, level = queue.pop()
        try:
            entries = os.scandir(folder)
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    is_directory = entry.is_dir(follow_symlinks=False)
                    if not is_directory and not entry.is_file(follow_symlinks=False):
                        continue  # known without asking for its status, and /etc is full of links
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                needed = 0o5 if is_directory else 0o4
                if status.st_mode & needed == needed:
                    if is_directory and level < depth:
                        queue.append((entry.path, level + 1))
                elif status.st_uid == user or status.st_gid in groups:
                    yield PrivateFile(path=entry.path, is_directory=is_directory)
