"""Only what is on the list passes."""

from drivers.environment import DEFAULT_PATH, base_environment


def test_what_passes_and_what_does_not() -> None:
    environ = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "TERM": "xterm",
        "HOME": "/outside",
        "GITHUB_TOKEN": "x",
        "OPENAI_API_KEY": "x",
        "SSH_AUTH_SOCK": "x",
        "DOCKER_HOST": "x",
        "DBUS_SESSION_BUS_ADDRESS": "x",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "x",
        "HTTPS_PROXY": "http://user:secret@proxy",
        "BASH_ENV": "x",
    }
    assert base_environment(environ, "/home/jo") == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "TERM": "xterm",
        "HOME": "/home/jo",
    }
    assert base_environment({}, "/home/jo") == {"PATH": DEFAULT_PATH, "HOME": "/home/jo"}


def test_paths_pass_if_they_can_mean_something_inside() -> None:
    environ = {
        "CARGO_HOME": "/home/jo/.cargo",
        "GOPATH": "go",
        "SSL_CERT_FILE": "/etc/ssl/corp.pem",
        "PIP_CERT": "/home/jo/corp.pem",
    }
    passed = base_environment(environ, "/home/jo")
    assert passed["CARGO_HOME"] == "/home/jo/.cargo"
    assert passed["SSL_CERT_FILE"] == "/etc/ssl/corp.pem"
    assert "GOPATH" not in passed
    assert "PIP_CERT" not in passed
