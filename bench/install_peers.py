"""python -m bench.install_peers: put the peers that are Python or npm packages under bench/out/peers.

squid and tinyproxy come from the system's packages; what is missing is named, not installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers import MITMPROXY_VERSION, OUT, PEERS, SRT_VERSION
from bench.startup import SRT, srt_missing

PROXY_PY_VERSION = "2.4.10"


def _install_python(folder: Path, requirement: str) -> None:
    if (folder / ".ready").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, requirement], check=True)
    (folder / ".ready").touch()


def _install_srt(folder: Path) -> None:
    if SRT.exists() or shutil.which("npm") is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text("{}\n")
    package = f"@anthropic-ai/sandbox-runtime@{SRT_VERSION}"
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", package], cwd=folder, check=True, env=os.environ
    )


def main() -> int:
    """Install what can be installed here and say what cannot."""
    peers = OUT / "peers"
    peers.mkdir(parents=True, exist_ok=True)
    _install_python(peers / "proxypy", f"proxy.py=={PROXY_PY_VERSION}")
    _install_python(peers / "mitm", f"mitmproxy=={MITMPROXY_VERSION}")
    _install_srt(peers / "srt")
    for name, lacking in [(peer.name, peer.missing()) for peer in PEERS] + [("srt", srt_missing())]:
        print(f"{name}: {lacking or 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
