"""The filter, run by a small interpreter of the instructions it uses: it must decide, and decide right, everywhere."""

import errno
import struct

import pytest

from drivers.seccomp import (
    FAMILIES,
    JUMP_EQUAL,
    JUMP_SET,
    LOAD_WORD,
    MACHINES,
    RETURN,
    RETURN_ALLOW,
    RETURN_ERRNO,
    Architecture,
    seccomp_program,
)

ALL = [(machine, each) for machine, architectures in MACHINES.items() for each in architectures]


def verdict(machine: str, audit: int, number: int, *arguments: int) -> int:
    """What the filter says about one call: 0 to let it through, or the error."""
    program = seccomp_program(machine)
    assert program is not None
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        code, equal, unequal, value = instructions[position]
        position += 1
        if code == LOAD_WORD:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == JUMP_EQUAL:
            position += equal if accumulator == value else unequal
        elif code == JUMP_SET:
            position += equal if accumulator & value else unequal
        else:
            assert code == RETURN
            return 0 if value == RETURN_ALLOW else value ^ RETURN_ERRNO


@pytest.mark.parametrize(("machine", "architecture"), ALL)
def test_sockets(machine: str, architecture: Architecture) -> None:
    allowed = [family for family in range(64) if not verdict(machine, architecture.audit, architecture.socket, family)]
    assert allowed == sorted(FAMILIES)
    # The kernel looks at the lower half of a register only, and so must the filter.
    assert verdict(machine, architecture.audit, architecture.socket, 0xFFFFFFFF_00000028) == errno.EAFNOSUPPORT
    assert verdict(machine, architecture.audit, architecture.socket, 0xFFFFFFFF_00000002) == 0


@pytest.mark.parametrize(("machine", "architecture"), ALL)
def test_numbers(machine: str, architecture: Architecture) -> None:
    said = {number: verdict(machine, architecture.audit, number) for number in range(600)}
    refused = {number: error for number, error in said.items() if error}
    expected = dict.fromkeys(architecture.forbidden, errno.EPERM) | dict.fromkeys(architecture.absent, errno.ENOSYS)
    expected[architecture.keyctl] = errno.EPERM
    expected[architecture.socket] = errno.EAFNOSUPPORT
    assert refused == expected


@pytest.mark.parametrize(("machine", "architecture"), ALL)
def test_only_a_nameless_session_keyring_is_joined(machine: str, architecture: Architecture) -> None:
    assert verdict(machine, architecture.audit, architecture.keyctl, 1, 0) == 0
    assert verdict(machine, architecture.audit, architecture.keyctl, 1, 4096) == errno.EPERM
    assert verdict(machine, architecture.audit, architecture.keyctl, 1, 1 << 32) == errno.EPERM
    assert verdict(machine, architecture.audit, architecture.keyctl, 11, 0) == errno.EPERM


def test_another_architecture_has_no_system_calls() -> None:
    assert verdict("x86_64", MACHINES["aarch64"][0].audit, 0) == errno.ENOSYS
    assert verdict("x86_64", MACHINES["x86_64"][0].audit, 0x40000000) == errno.ENOSYS


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp_program("vax") is None
