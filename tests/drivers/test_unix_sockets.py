"""Reading the kernel's table of unix sockets."""

import socket
from pathlib import Path

from drivers.unix_sockets import bound_sockets

TABLE = """\
Num       RefCount Protocol Flags    Type St Inode Path
00000000c5e98c71: 00000003 00000000 00000000 0001 03 11994
000000001a275ee5: 00000002 00000000 00010000 0001 01 11997 /run/a b
00000000dbd691f2: 00000002 00000000 00000000 0002 01   123 /dev/log
0000000053c1f2aa: 00000002 00000000 00010000 0001 01   124 @abstract
0000000053c1f2ab: 00000002 00000000 00010000 0001 01   125 relative
nonsense
"""


def test_the_table_is_read(tmp_path: Path) -> None:
    table = tmp_path / "unix"
    table.write_text(TABLE)
    assert "/run/a b" in bound_sockets(str(table))
    assert len(bound_sockets(str(table))) == 2
    assert bound_sockets(str(tmp_path / "none")) == ()


def test_a_socket_of_this_host_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert str(path) in bound_sockets()
