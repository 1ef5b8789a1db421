"""Which of the host's environment variables a sandbox sees: those on this list, and no other.

A list of what to remove would have to know every program's secrets; so nothing passes that is not named here. All of
these are settings of the person or the machine. None of them is a credential, names an agent's socket, or changes
which code a program loads.
"""

import os
from collections.abc import Mapping

PERSONAL = (
    *("PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TZ"),
    *("USER", "LOGNAME", "SHELL", "CI"),
)
"""Passed as they are. Every `LC_*` is passed too."""

TOOLCHAINS = (
    *("JAVA_HOME", "GOROOT", "GOPATH", "CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "FNM_DIR", "VOLTA_HOME"),
    *("BUN_INSTALL", "DENO_INSTALL", "DENO_INSTALL_ROOT", "SDKMAN_DIR", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR"),
    *("RBENV_ROOT", "NODENV_ROOT", "GHCUP_INSTALL_BASE_PREFIX"),
)
"""Where toolchains are installed: passed if it is an absolute path."""

TRUST_STORES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE"),
)
"""Where certificates of authorities are: passed if they are in a system directory, since others may be invisible."""

TRUST_STORE_DIRECTORIES = ("/etc/", "/usr/", "/opt/", "/nix/")

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(environ: Mapping[str, str], home: str) -> dict[str, str]:
    """What every command in a sandbox gets.

    :param environ: the host's variables.
    :param home: the home directory inside.
    """
    passed = {name: environ[name] for name in PERSONAL if name in environ}
    passed.update((name, value) for name, value in environ.items() if name.startswith("LC_"))
    passed.update((name, environ[name]) for name in TOOLCHAINS if os.path.isabs(environ.get(name, "")))
    for name in TRUST_STORES:
        if environ.get(name, "").startswith(TRUST_STORE_DIRECTORIES):
            passed[name] = environ[name]
    return {"PATH": DEFAULT_PATH, **passed, "HOME": home}
