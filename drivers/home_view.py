"""The home directory of a sandbox: private and writable, with the host's harmless entries showing through read-only.

Names without a dot are a person's own files and projects, and show. Names with a dot belong to programs, and half of
them hold credentials nobody has a list of; so they are absent, but for the toolchains below.
"""

import glob
import os
import re
import stat
from fnmatch import fnmatch
from pathlib import Path

from drivers.view import View

TOOLCHAIN_DIRECTORIES = (
    *(".asdf", ".bun", ".cargo", ".deno", ".elan", ".fnm", ".ghcup", ".goenv", ".jabba", ".jenv", ".juliaup", ".krew"),
    *(".linuxbrew", ".local/bin", ".local/lib", ".local/opt", ".local/pipx", ".local/share/claude", ".local/share/fnm"),
    *(".local/share/mise", ".local/share/pipx", ".local/share/pnpm", ".local/share/rtx", ".local/share/uv", ".n"),
    *(".local/share/virtualenvs", ".nix-defexpr", ".nix-profile", ".nodenv", ".npm-global", ".nvm", ".opam", ".pixi"),
    *(".plenv", ".pyenv", ".rbenv", ".rustup", ".rvm", ".sdkman", ".swiftly", ".volta", ".yarn/bin"),
)
"""Dot entries that are installed programs; they show read-only."""

TOOLCHAIN_SECRETS = (
    *(".cargo/credentials", ".cargo/credentials.toml", ".local/share/uv/credentials", ".npm-global/etc/npmrc"),
    *(".bun/install/global/bunfig.toml", ".asdf/.env", ".rvm/user", ".n/etc/npmrc", ".nvm/versions/node/*/etc/npmrc"),
    *(".nodenv/versions/*/etc/npmrc", ".volta/tools/image/*/*/etc/npmrc", ".asdf/installs/nodejs/*/etc/npmrc"),
    *(".local/share/fnm/node-versions/*/installation/etc/npmrc", ".local/share/mise/installs/node/*/etc/npmrc"),
    *(".pyenv/versions/*/pip.conf", ".pyenv/versions/*/envs/*/pip.conf", ".asdf/installs/python/*/pip.conf"),
    *(".local/share/mise/installs/python/*/pip.conf", ".local/share/uv/python/*/pip.conf"),
    *(".local/share/virtualenvs/*/pip.conf", ".local/pipx/venvs/*/pip.conf", ".local/share/pipx/venvs/*/pip.conf"),
)
"""What is hidden again inside the toolchains (`*` is any one name): the settings of one installation, where
`npm config --global` and pip put the tokens of registries."""

CARGO_SETTINGS = (".cargo/config", ".cargo/config.toml")
"""Builds need them, but a registry's token may be in them: hidden only then."""

SECRET_NAMES = (
    *("snap", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.kdbx", "*.kdb", "*.gpg", "*.asc", "*.ovpn", "kubeconfig*", "credentials*", "*credentials.json"),
    *("*_rsa", "*.env", "*service-account*.json", "*service_account*.json", "secrets*"),
)
"""Names without a dot that are credentials, or (snap) a second set of program profiles."""

CLAUDE_CODE_SETTINGS = ("settings.json", "settings.local.json", "hooks")
"""Read-only inside ~/.claude: they name commands that Claude Code runs, later and outside."""

MAX_SETTINGS_BYTES = 1 << 20
GIT_SECTION = re.compile(r"\s*\[\s*([A-Za-z][A-Za-z0-9.-]*)\s*\]\s*")
GIT_SETTING = re.compile(r'\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^"\\#;\n]*?)\s*')
GIT_PLAIN_SETTINGS = {
    "user": ("name", "email"),
    "init": ("defaultbranch",),
    "core": ("autocrlf", "eol", "filemode", "ignorecase", "quotepath"),
    "pull": ("rebase", "ff"),
    "merge": ("ff", "conflictstyle"),
    "push": ("default", "autosetupremote"),
    "commit": ("cleanup",),
}
"""Settings of ~/.gitconfig that neither hold a credential nor run a program."""


def show_home(view: View, home: str) -> None:
    """Put a private directory at `home` and let the host's harmless entries show through."""
    view.private(home, 0o700)
    with os.scandir(home) as entries:
        visible = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    for name in visible:
        if not any(fnmatch(name.lower(), pattern) for pattern in SECRET_NAMES):
            _show_entry(view, f"{home}/{name}")
    for name in TOOLCHAIN_DIRECTORIES:
        _show_entry(view, f"{home}/{name}")
    for name in TOOLCHAIN_SECRETS:
        for path in glob.glob(f"{glob.escape(home)}/{name}"):
            _mask_entry(view, path)
    for name in CARGO_SETTINGS:
        if _mentions_token(f"{home}/{name}"):
            _mask_entry(view, f"{home}/{name}")


def _show_entry(view: View, path: str) -> None:
    """Show a file or directory; a symbolic link stays one, and leads to whatever is there inside."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if stat.S_ISLNK(mode):
        view.plain("--symlink", os.readlink(path), path)
    elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
        view.show_if_there(path)


def _mask_entry(view: View, path: str) -> None:
    real = os.path.realpath(path)
    for place in view.places_of(real):
        if os.path.exists(real):
            view.mask(place, directory=os.path.isdir(real))


def _mentions_token(path: str) -> bool:
    text = _read_settings(path).lower()
    return any(word in text for word in ("token", "credential", "password", "secret"))


def _read_settings(path: str) -> str:
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(MAX_SETTINGS_BYTES)
    except OSError:
        return ""


def plain_git_settings(home: str) -> str:
    """The harmless part of ~/.gitconfig, so that commits made inside have an author.

    The whole of it would not do: `url.*.insteadOf` and `http.extraHeader` hold tokens, and helpers, aliases and
    filters run programs. A value that needs quoting is left out rather than understood.
    """
    lines, section = [], ""
    for line in _read_settings(f"{home}/.gitconfig").splitlines():
        if line.lstrip().startswith("["):
            match = GIT_SECTION.fullmatch(line)
            section = match.group(1).lower() if match else ""
        elif (match := GIT_SETTING.fullmatch(line)) and match.group(1).lower() in GIT_PLAIN_SETTINGS.get(section, ()):
            lines.append(f"[{section}]\n\t{match.group(1)} = {match.group(2)}\n")
    return "".join(lines)


def show_claude_state(view: View, home: str) -> tuple[str, ...]:
    """Show ~/.claude writable: sign-in, transcripts and memory of Claude Code live there.

    The run store, ~/.iterion, is not shown: the record of what a sandbox did must be out of its reach.

    :returns: what was mounted, each `host:inside`.
    """
    state = f"{home}/.claude"
    if not os.path.isdir(state) or os.path.islink(state):
        return ()
    view.show(state, writable=True)
    for name in CLAUDE_CODE_SETTINGS:
        path = f"{state}/{name}"
        if os.path.lexists(path) and not os.path.islink(path):
            view.show(path)
    return (f"{state}:{state}",)
