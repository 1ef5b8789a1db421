"""Patterns: the language, its one spelling, and what to write instead of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.host import parse_authority, parse_host
from policy.pattern import MAX_PATTERN_CHARACTERS, Kind, Pattern, PatternError, parse_pattern
from tests.policy.properties import check_pattern

PATTERN_TEXTS = st.one_of(
    st.text(max_size=30),
    st.text(st.sampled_from("aB.*!:/[]-0159 \u00fc\uff0e%@"), max_size=24),
    st.from_regex(r"(\*{1,2}\.)?[a-z]{1,3}(\.[a-z]{1,3}){0,2}(:[0-9]{1,5}(-[0-9]{1,5})?)?", fullmatch=True),
    st.builds("{}/{}".format, st.ip_addresses(), st.integers(0, 130)),
    st.builds("[{}/{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 130), st.integers(0, 70_000)),
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("api.example.com", Kind.EXACT),
        ("localhost", Kind.EXACT),
        ("*.example.com", Kind.CHILD),
        ("**.example.com", Kind.DESCENDANT),
        ("**.com", Kind.DESCENDANT),
        ("*", Kind.ONE_LABEL),
        ("**", Kind.ANY),
        ("1.2.3.4", Kind.NETWORK),
        ("10.0.0.0/8", Kind.NETWORK),
        ("0.0.0.0/0", Kind.NETWORK),
        ("2001:db8::1", Kind.NETWORK),
        ("2001:db8::/32", Kind.NETWORK),
        ("::/0", Kind.NETWORK),
        ("api.example.com:443", Kind.EXACT),
        ("*.example.com:8000-8999", Kind.CHILD),
        ("**:25", Kind.ANY),
        ("*:80", Kind.ONE_LABEL),
        ("1.2.3.4:443", Kind.NETWORK),
        ("10.0.0.0/8:1-1023", Kind.NETWORK),
        ("[2001:db8::1]:443", Kind.NETWORK),
        ("[2001:db8::/32]:443-444", Kind.NETWORK),
        ("xn--bcher-kva.example", Kind.EXACT),
    ],
)
def test_canonical_patterns_print_as_they_are(text: str, kind: Kind) -> None:
    pattern = parse_pattern(text)
    assert pattern.kind is kind
    assert str(pattern) == text
    assert pattern.has_ports is (":" in text and not text.startswith(("2001:", "::")))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("**.b\u00fccher.example:443", "**.xn--bcher-kva.example:443"),
        ("fa\u00df.de", "xn--fa-hia.de"),
    ],
)
def test_international_names_may_be_readable(text: str, printed: str) -> None:
    assert str(parse_pattern(text)) == printed
    assert parse_pattern(text) == parse_pattern(printed)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        (" example.com ", "example.com"),
        ("'example.com'", "example.com"),
        ("HTTP://x", "x"),
        ("https://u:p@Example.com:0443/a?b", "example.com:443"),
        ("//example.com", "example.com"),
        ("example.com/path", "example.com"),
        ("example.com/8", "example.com"),
        ("user@example.com", "example.com"),
        (".example.com", "**.example.com"),
        ("*example.com", "*.example.com"),
        ("**.*.x", "**.x"),
        ("*.*", "**"),
        ("***", "**"),
        ("*.", "*"),
        ("10.*", "10.0.0.0/8"),
        ("10.1.*.*", "10.1.0.0/16"),
        ("10.1.2.*", "10.1.2.0/24"),
        ("10.0.0.1/8", "10.0.0.0/8"),
        ("10.0.0.0/08", "10.0.0.0/8"),
        ("10.0.0.0./8", "10.0.0.0/8"),
        ("1.2.3.4/32", "1.2.3.4"),
        ("1.2.3.4/x", "1.2.3.4"),
        ("\uff110.0.0.0/8", "10.0.0.0/8"),
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:db8:0:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::/32]", "2001:db8::/32"),
        ("[2001:db8::]/32", "2001:db8::/32"),
        ("[2001:db8::]/32:443", "[2001:db8::/32]:443"),
        ("2001:db8::/32:443", "[2001:db8::/32]:443"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("[::ffff:1.2.3.4]:80", "1.2.3.4:80"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::ffff:0:0/95", "::fffe:0:0/95"),
        ("a.com:", "a.com"),
        ("a.com:*", "a.com"),
        ("a.com:1-65535", "a.com"),
        ("a.com:0-65535", "a.com"),
        ("a.com:0443", "a.com:443"),
        ("a.com:443-443", "a.com:443"),
        ("a.com:90-80", "a.com:80-90"),
        ("!a.com", "a.com"),
        ("!!a.com", "a.com"),
        ("B\u00dcCHER.example", "b\u00fccher.example"),
        ("b\u00fccher.example.", "b\u00fccher.example"),
        ("a\u3002com", "a.com"),
    ],
)
def test_another_spelling_is_refused_with_the_right_one(text: str, suggestion: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert caught.value.suggestion == suggestion
    assert f"write `{suggestion}`" in str(caught.value)
    check_pattern(text)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "empty"),
        ("a.*.com", "whole first label"),
        ("www.*", "whole first label"),
        ("a*b.com", "whole first label"),
        ("*.10.0.0.1", "CIDR"),
        ("*.-a.com", "hyphen"),
        ("127.1", "disguise"),
        ("a b", "space"),
        ("1.2.3.4/33", "prefix length"),
        ("2001:db8::/129", "prefix length"),
        ("1.2.3.4/\u0668", "prefix length"),
        ("1.2.3.4/0000", "prefix length"),
        ("a.com:0", "port"),
        ("a.com:65536", "port"),
        ("a.com:http", "port"),
        ("a.com:80,443", "port"),
        ("a.com:80-", "port"),
        ("[::1]:0", "port"),
        ("[a.com]:80", "brackets"),
        ("fe80::1%eth0", "zone"),
        ("http://", "URL"),
        ("/", "empty"),
        ("x" * (MAX_PATTERN_CHARACTERS + 1), "longer"),
    ],
)
def test_what_has_no_right_spelling_gets_the_fault_only(text: str, detail: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert detail in caught.value.detail
    assert caught.value.suggestion is None


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.com", ["a.com:1"], ["b.a.com:1", "com:1", "a.com.b:1", "1.2.3.4:1"]),
        ("*.a.com", ["b.a.com:1"], ["a.com:1", "c.b.a.com:1", "ba.com:1"]),
        ("**.a.com", ["b.a.com:1", "c.b.a.com:1"], ["a.com:1", "ba.com:1"]),
        ("*", ["a:1"], ["a.com:1", "1.2.3.4:1"]),
        ("**", ["a:1", "b.a.com:1"], ["1.2.3.4:1", "[::1]:1"]),
        ("10.0.0.0/8", ["10.1.2.3:1", "[::ffff:10.1.2.3]:1"], ["11.0.0.1:1", "a.com:1", "[::10.0.0.1]:1"]),
        ("::/0", ["[::1]:1", "[2001:db8::1]:1"], ["1.2.3.4:1", "[::ffff:1.2.3.4]:1"]),
        ("a.com:80-81", ["a.com:80", "a.com:81"], ["a.com:79", "a.com:82"]),
    ],
)
def test_patterns_match(pattern: str, matching: list[str], others: list[str]) -> None:
    parsed = parse_pattern(pattern)
    assert all(parsed.matches(parse_authority(each)) for each in matching)
    assert not any(parsed.matches(parse_authority(each)) for each in others)


def test_H17_a_name_is_matched_by_labels_not_by_letters() -> None:
    for text in ("trusted.net", "*.trusted.net", "**.trusted.net"):
        pattern = parse_pattern(text)
        for host in ("nottrusted.net", "trusted.net.evil.com", "trustedxnet", "trusted.ne"):
            assert not pattern.matches_host(parse_host(host))


def test_H11_addresses_are_compared_as_numbers() -> None:
    pattern = parse_pattern("2001:db8::1")
    assert pattern.matches_host(parse_host("[2001:DB8:0:0::1]"))
    assert pattern.matches_host(parse_host("2001:0db8::0:1"))


def test_a_pattern_is_a_value() -> None:
    assert parse_pattern("a.com") == Pattern(kind=Kind.EXACT, name="a.com")
    assert len({parse_pattern("a.com:80"), parse_pattern("a.com:80")}) == 1


def test_values_in_errors_are_readable_and_printable() -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern("b\u00fccher\x1b\u202e.example")
    assert caught.value.value == "b\u00fccher\\x1b\\u202e.example"


@given(PATTERN_TEXTS)
def test_every_text_is_a_canonical_pattern_or_refused(text: str) -> None:
    check_pattern(text)
