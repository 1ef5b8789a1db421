"""Removing directories that a sandboxed command could write to."""

import contextlib
import os
import shutil
import stat
from pathlib import Path

__all__ = ["remove_tree"]


def remove_tree(path: Path) -> bool:
    """Remove a directory and all below it, following no links; True when nothing is left.

    A directory that lost its permission bits gets them back first: a sandboxed command can take them away.
    """
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    _make_writable(path)
    with contextlib.suppress(OSError):
        path.rmdir()  # an empty directory needs no file descriptor
    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _make_writable(top: Path) -> None:
    pending = [str(top)]
    while pending:
        directory = pending.pop()
        try:
            if stat.S_IMODE(os.lstat(directory).st_mode) & 0o700 != 0o700:
                os.chmod(directory, 0o700)
            with os.scandir(directory) as entries:
                pending += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
