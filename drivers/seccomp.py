"""The system calls a sandbox does without: those that reach past its namespaces.

Namespaces divide most of what the kernel has, but not all. AF_VSOCK belongs to the machine: a program in an empty
network namespace reaches the hypervisor, and whoever listens for it on this host. `request_key` makes the kernel
start a helper outside, which for the type `dns_resolver` asks the host's DNS server. Keyrings, the kernel's log and
its tracing interfaces are the machine's as well. io_uring opens sockets without the system call that is looked at.

What remains allowed is decided by a list where there is one (families of sockets), and by names elsewhere: a list of
every system call that programs need would have to follow every program. Capabilities are dropped, so what asks for one
is not listed. seccomp(2); linux/audit.h for the architectures; the kernel's syscall tables for the numbers.
"""

import errno
import struct
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, AF_UNIX

AF_NETLINK = 16
FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
"""The socket families that belong to a network namespace and that programs need."""

KEYCTL_JOIN_SESSION_KEYRING = 1
X32_BIT = 0x40000000

LOAD_WORD = 0x20
JUMP_EQUAL = 0x15
JUMP_SET = 0x45
RETURN = 0x06
RETURN_ALLOW = 0x7FFF0000
RETURN_ERRNO = 0x00050000

OFFSET_NUMBER = 0
OFFSET_ARCHITECTURE = 4
OFFSET_ARGUMENTS = 16
"Of struct seccomp_data; an argument has eight bytes, the lower four first on every architecture below."

IO_URING = (425, 426, 427)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The numbers of one architecture's system calls."""

    audit: int
    socket: int
    keyctl: int
    forbidden: tuple[int, ...]
    "syslog, add_key, request_key, perf_event_open, open_by_handle_at, bpf, userfaultfd."
    absent: tuple[int, ...] = IO_URING
    "Programs fall back to something else when these do not exist."
    x32: bool = False


X86_64 = Architecture(audit=0xC000003E, socket=41, keyctl=250, forbidden=(103, 248, 249, 298, 304, 321, 323), x32=True)
I386 = Architecture(
    audit=0x40000003,
    socket=359,
    keyctl=288,
    forbidden=(103, 286, 287, 336, 342, 357, 374),
    absent=(102, *IO_URING),  # socketcall: its arguments are in memory, where no filter can look
)
ARM = Architecture(audit=0x40000028, socket=281, keyctl=311, forbidden=(103, 309, 310, 364, 371, 386, 388))
GENERIC_FORBIDDEN = (116, 217, 218, 241, 265, 280, 282)
AARCH64 = Architecture(audit=0xC00000B7, socket=198, keyctl=219, forbidden=GENERIC_FORBIDDEN)
RISCV64 = Architecture(audit=0xC00000F3, socket=198, keyctl=219, forbidden=GENERIC_FORBIDDEN)
LOONGARCH64 = Architecture(audit=0xC0000102, socket=198, keyctl=219, forbidden=GENERIC_FORBIDDEN)

MACHINES = {
    "x86_64": (X86_64, I386),
    "aarch64": (AARCH64, ARM),
    "riscv64": (RISCV64,),
    "loongarch64": (LOONGARCH64,),
}
"""What each machine, as uname(2) calls it, can run."""


def seccomp_program(machine: str) -> bytes | None:
    """Build the filter for a machine, as `bwrap --seccomp` reads it; None for a machine whose numbers are not known.

    :param machine: as `os.uname().machine` says it.
    """
    architectures = MACHINES.get(machine)
    if architectures is None:
        return None
    program = [_instruction(LOAD_WORD, OFFSET_ARCHITECTURE)]
    for architecture in architectures:
        block = _block(architecture)
        program.append(_instruction(JUMP_EQUAL, architecture.audit, unequal=len(block)))
        program += block
    program.append(_refuse(errno.ENOSYS))
    return b"".join(program)


def _block(architecture: Architecture) -> list[bytes]:
    """What is decided about one architecture's calls. Every way through it ends in a verdict."""
    allow = _instruction(RETURN, RETURN_ALLOW)
    block = [_instruction(LOAD_WORD, OFFSET_NUMBER)]
    if architecture.x32:
        block += [_instruction(JUMP_SET, X32_BIT, unequal=1), _refuse(errno.ENOSYS)]
    for number in architecture.forbidden:
        block += [_instruction(JUMP_EQUAL, number, unequal=1), _refuse(errno.EPERM)]
    for number in architecture.absent:
        block += [_instruction(JUMP_EQUAL, number, unequal=1), _refuse(errno.ENOSYS)]
    family = [_instruction(LOAD_WORD, OFFSET_ARGUMENTS)]
    for known in FAMILIES:
        family += [_instruction(JUMP_EQUAL, known, unequal=1), allow]
    family.append(_refuse(errno.EAFNOSUPPORT))
    block += [_instruction(JUMP_EQUAL, architecture.socket, unequal=len(family)), *family]
    # A fresh, nameless session keyring may be joined: init does so, and leaves the one that it inherited.
    nameless = [
        part
        for offset, value in ((0, KEYCTL_JOIN_SESSION_KEYRING), (8, 0), (12, 0))
        for part in (
            _instruction(LOAD_WORD, OFFSET_ARGUMENTS + offset),
            _instruction(JUMP_EQUAL, value, equal=1),
            _refuse(errno.EPERM),
        )
    ]
    block += [_instruction(JUMP_EQUAL, architecture.keyctl, unequal=len(nameless)), *nameless, allow]
    return block


def _instruction(code: int, value: int, *, equal: int = 0, unequal: int = 0) -> bytes:
    """One struct sock_filter: what to do, how many instructions to skip when the comparison holds, when it does not."""
    return struct.pack("=HBBI", code, equal, unequal, value)


def _refuse(number: int) -> bytes:
    return _instruction(RETURN, RETURN_ERRNO | number)
