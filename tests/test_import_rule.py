"""The house's one structural rule: the leaves know neither each other nor the gateway."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# room -> top-level rooms it may import. drivers may use policy's value types because policy is pure.
ALLOWED: dict[str, frozenset[str]] = {
    "policy": frozenset({"policy"}),
    "drivers": frozenset({"drivers", "policy"}),
    "mcp_bridge": frozenset({"mcp_bridge"}),
    "gateway": frozenset({"gateway", "policy", "drivers", "mcp_bridge"}),
}
ROOMS = frozenset(ALLOWED)

# policy is the standard library (its pure part) and idna, nothing else.
POLICY_FORBIDDEN = frozenset({"trio", "socket", "asyncio", "os", "time", "pathlib", "subprocess", "threading"})


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return found


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_the_rooms_it_may(room: str) -> None:
    for path in sources(room):
        rooms = {module.split(".")[0] for module in imported_modules(path)} & ROOMS
        assert rooms <= ALLOWED[room], f"{path.relative_to(ROOT)} imports {sorted(rooms - ALLOWED[room])}"


def test_policy_does_no_io() -> None:
    for path in sources("policy"):
        bad = {module.split(".")[0] for module in imported_modules(path)} & POLICY_FORBIDDEN
        assert not bad, f"{path.relative_to(ROOT)} imports {sorted(bad)}"


def test_asyncio_stays_out_of_the_rooms() -> None:
    for room in ROOMS:
        for path in sources(room):
            assert "asyncio" not in imported_modules(path), path
