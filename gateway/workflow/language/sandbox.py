"""The ``sandbox:`` property, in its word form and its block form."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.workflow.language.literals import Values
from gateway.workflow.language.properties import (
    Table,
    block,
    choice,
    free_block,
    integer,
    items,
    loose,
    number,
    read_properties,
    text,
)
from gateway.workflow.language.syntax import Entry, Scalar
from gateway.workflow.model import BuildBlock, ListItem, NetworkBlock, SandboxBlock

MODES = ("auto", "none", "inline")


def _text_map(values: Values, what: str, entry: Entry) -> Mapping[str, str] | None:
    return values.text_map(what, entry)


def _hosts(values: Values, what: str, entry: Entry) -> Mapping[str, tuple[ListItem, ...]]:
    """``"name": ["address", ...]`` lines."""
    found: dict[str, tuple[ListItem, ...]] = {}
    for key, value in values.pairs(what, entry):
        name = Scalar(key).text
        values.once(found, name, key.position)
        found[name] = values.items(f"{what}.{name}", value) or ()
    return MappingProxyType(found)


def _network(values: Values, what: str, entry: Entry) -> NetworkBlock:
    read = read_properties(values, what, tuple(values.lines(what, entry)), NETWORK)
    return NetworkBlock(**read.values, position=entry.position, positions=read.positions)


NETWORK: Table = {
    "mode": choice("open", "allowlist", "denylist", code="C044"),
    "preset": text,
    "inherit": choice("merge", "append", "replace", code="C044"),
    "rules": items,
    "enforcement": choice("enforced", "cooperative", code="C044"),
    "tls": choice("passthrough", "inspect", code="C044"),
    "inspect_hosts": items,
    "exclude_hosts": items,
    "hosts": _hosts,
    "http": free_block,
}
SANDBOX: Table = {
    "mode": choice(*MODES, code="C044"),
    "image": text,
    "build": block("build", BuildBlock, {"dockerfile": text, "context": text, "args": _text_map}),
    "user": loose,
    "workspace_folder": text,
    "host_state": choice("auto", "none", code="C044"),
    "post_create": text,
    "env": _text_map,
    "mounts": items,
    "network": _network,
    "secrets": free_block,
    "cpus": number,
    "memory": loose,
    "pids": integer,
}


def sandbox_kind(values: Values, what: str, entry: Entry) -> SandboxBlock | None:
    """Read one ``sandbox:`` property."""
    if entry.value is not None and entry.body is None:
        mode = values.choice(what, entry.value, MODES, "C044")
        if mode is None:
            return None
        return SandboxBlock(word=True, mode=mode, position=entry.value.position)
    read = read_properties(values, what, tuple(values.lines(what, entry)), SANDBOX)
    return SandboxBlock(word=False, **read.values, position=entry.position, positions=read.positions)
