"""The variables that lead the programs inside a sandbox to the proxy.

There is no standard: each client family reads its own (curl only the lower-case ``http_proxy``, node only
when ``NODE_USE_ENV_PROXY`` says so, rsync and Java neither). None of this is enforcement; where egress is
enforced, a program that ignores all of it reaches nothing.
"""

import secrets
from collections.abc import Mapping
from typing import Final

__all__ = ["LOOPBACK_NO_PROXY", "SSH_CONNECT_PATH", "make_token", "proxy_environment"]

LOOPBACK_NO_PROXY: Final = ("localhost", "127.0.0.1", "::1")
"What is reached without the proxy: the sandbox's own loopback."

SSH_CONNECT_PATH: Final = "/tmp/.iterion/ssh_connect.py"
"Where the helper that carries ssh through the proxy is put inside."

TOKEN_BYTES: Final = 32


def make_token() -> str:
    """Make a run's proxy token: 32 random bytes in hex, so that it needs no escaping in a URL."""
    return secrets.token_hex(TOKEN_BYTES)


def proxy_environment(
    *,
    host: str,
    port: int,
    token: str,
    no_proxy: tuple[str, ...] = LOOPBACK_NO_PROXY,
    ssh_connect: str | None,
) -> Mapping[str, str]:
    """Build the variables for one sandbox.

    Args:
        host: the proxy's address as seen inside.
        port: its TCP port.
        token: the run's proxy token.
        no_proxy: hosts that are reached without the proxy.
        ssh_connect: how the ssh helper is run inside (see ``ssh_connect.py``), or None without one.

    Returns:
        Names and values, upper and lower case where clients differ.
    """
    url = f"http://t:{token}@{host}:{port}"
    exempt = ",".join(no_proxy)
    both_cases = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": exempt}
    java_exempt = "|".join(no_proxy)
    environment = {
        **both_cases,
        **{name.lower(): value for name, value in both_cases.items()},
        "NODE_USE_ENV_PROXY": "1",
        "GRPC_PROXY": url,
        "grpc_proxy": url,
        "RSYNC_PROXY": f"t:{token}@{host}:{port}",
        "DOCKER_HTTP_PROXY": url,
        "DOCKER_HTTPS_PROXY": url,
        "CLOUDSDK_PROXY_TYPE": "http",
        "CLOUDSDK_PROXY_ADDRESS": host,
        "CLOUDSDK_PROXY_PORT": str(port),
        "CLOUDSDK_PROXY_USERNAME": "t",
        "CLOUDSDK_PROXY_PASSWORD": token,
        "JAVA_TOOL_OPTIONS": (
            f"-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} "
            f"-Dhttps.proxyHost={host} -Dhttps.proxyPort={port} -Dhttp.nonProxyHosts={java_exempt}"
        ),
        # git asks libcurl for "any" method, which costs a 407 round trip before each request.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.proxyAuthMethod",
        "GIT_CONFIG_VALUE_0": "basic",
    }
    if ssh_connect is not None:
        environment["GIT_SSH_COMMAND"] = f"ssh -o ProxyCommand='{ssh_connect} %h %p'"
    return environment
