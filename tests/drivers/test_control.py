"""The gateway's half of the protocol: it frames what it says, and believes little of what it hears."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers import control
from drivers.base import ExitStatus, ProbeTarget
from drivers.control import ProtocolError, parse_reply


def test_requests() -> None:
    request = control.encode_exec(7, ["echo", "", "ä"], {"A": "b=c"}, "/w", terminal=False)
    assert request.split(b"\0") == [b"exec", b"7", b"/w", b"pipes", b"3", b"echo", b"", "ä".encode(), b"A=b=c"]
    assert control.encode_exec(1, ["x"], {}, "/", terminal=True).split(b"\0")[3] == b"terminal"
    assert control.encode_kill(3) == b"kill\x003"
    assert control.encode_signal(3, 15) == b"signal\x003\x0015"
    assert control.encode_write(3, "/a\udcff", 0o100755) == b"write\x003\x00/a\xff\x00755"
    targets = [ProbeTarget(name="x", kind="tcp", address="::1", port=80)]
    assert control.encode_probe(3, 2.5, targets) == b"probe\x003\x002.5\x00tcp ::1 80"


@pytest.mark.parametrize(
    ("argv", "env", "cwd"),
    [
        ([], {}, "/"),
        ([""], {}, "/"),
        (["a\0"], {}, "/"),
        (["a"], {"": "x"}, "/"),
        (["a"], {"A=": "x"}, "/"),
        (["a"], {}, "\0"),
    ],
)
def test_impossible_requests(argv: list[str], env: dict[str, str], cwd: str) -> None:
    with pytest.raises(ValueError, match=r"NUL|command|variable"):
        control.encode_exec(1, argv, env, cwd, terminal=False)


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"ready", control.Ready()),
        (b"fatal\0no", control.Fatal(detail="no")),
        (b"exit\0" + b"3\0code\x00255", control.Exited(identity=3, status=ExitStatus(code=255))),
        (b"exit\0" + b"3\0signal\x009", control.Exited(identity=3, status=ExitStatus(signal=9))),
        (b"killed\0" + b"3\x000", control.Killed(identity=3, remaining=0)),
        (b"wrote\0" + b"3\0", control.Wrote(identity=3, error="")),
        (b"probe\0" + b"3\x000\x001\0ok", control.Probed(identity=3, index=0, reached=True, detail="ok")),
    ],
)
def test_replies(data: bytes, reply: control.Reply) -> None:
    assert parse_reply(data) == reply


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ready\0",
        b"exit",
        b"exit\0" + b"3\0code\x00256",
        b"exit\0" + b"3\0code\0-1",
        b"exit\0" + b"3\0code\0+1",
        b"exit\0x\0code\x001",
        b"exit\0" + b"3\0other\x001",
        b"exit\0" + b"9" * 100 + b"\0code\x001",
        "exit\0٣\0code\0001".encode(),
        b"probe\0" + b"3\x000\x002\0x",
        b"x" * 5000,
    ],
)
def test_what_is_no_reply(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_reply(data)


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"exit", b"3", b"code", b"probe", b"1", b"\xff"])).map(b"\0".join)
)
def test_nothing_but_the_documented_error(data: bytes) -> None:
    with suppress(ProtocolError):
        parse_reply(data)


def test_texts_from_inside_are_made_harmless() -> None:
    reply = parse_reply(b"fatal\0\x1b[31m" + b"x" * 1000)
    assert isinstance(reply, control.Fatal)
    assert reply.detail.startswith("?[31m")
    assert len(reply.detail) == control.MAX_DETAIL_CHARACTERS
