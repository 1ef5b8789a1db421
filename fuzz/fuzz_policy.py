"""Hosts, patterns, policies and decisions: no input raises, and the engine agrees with a plain scan of the rules."""

from tests.policy.properties import fuzz_policy

SEEDS = (
    b"a\napi.example.com\n*.example.com:443\n!**.evil.example\napi.example.com:443",
    b"d\n!10.0.0.0/8\n!2001:db8::/32\n[2001:db8::1]:443\n10.1.2.3:443",
    b"o\nlocalhost\n127.0.0.1\nlocalhost:80",
    b"a\n**\n!**\n1.2.3.4\n[::ffff:1.2.3.4]:443",
    "a\nb\u00fccher.example\nB\u00dcCHER.example:443".encode(),
    "a\nxn--bcher-kva.example:8000-8999\n\u2460\u2461\u2466.0.0.1:80".encode(),
    b"d\n!10.0.0.0/8:22\n64:ff9b::a00:1\n2002:a00:1::\n[64:ff9b::a00:1]:22",
    b"a\nHTTP://x/y\n.example.com\n10.0.0.1/8\n0x7f.1:80",
)


def fuzz(data: bytes) -> None:
    """Check every property of the policy on one input."""
    fuzz_policy(data)
