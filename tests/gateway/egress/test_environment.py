"""The proxy's variables: every client family of docs/clients is led to it."""

from urllib.parse import urlsplit

from gateway.egress.environment import make_token, proxy_environment


def test_both_cases_name_the_same_proxy_with_the_token() -> None:
    environment = proxy_environment(host="127.0.0.1", port=3128, token="a" * 64, ssh_connect=None)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        assert environment[name] == environment[name.lower()]
    proxy = urlsplit(environment["HTTPS_PROXY"])
    assert (proxy.hostname, proxy.port, proxy.username, proxy.password) == ("127.0.0.1", 3128, "t", "a" * 64)
    assert environment["NO_PROXY"].split(",") == ["localhost", "127.0.0.1", "::1"]
    assert environment["NODE_USE_ENV_PROXY"] == "1"
    assert "-Dhttps.proxyPort=3128" in environment["JAVA_TOOL_OPTIONS"]
    assert "GIT_SSH_COMMAND" not in environment


def test_ssh_goes_through_the_helper_where_there_is_one() -> None:
    environment = proxy_environment(host="h", port=1, token="t", ssh_connect="/usr/bin/python3 /x.py")
    assert environment["GIT_SSH_COMMAND"] == "ssh -o ProxyCommand='/usr/bin/python3 /x.py %h %p'"


def test_a_token_is_32_random_bytes_in_hex() -> None:
    tokens = {make_token() for _ in range(10)}
    assert len(tokens) == 10
    assert all(len(bytes.fromhex(token)) == 32 for token in tokens)
