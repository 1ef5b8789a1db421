"""A process number alone says nothing: the start time, the boot and the host belong to it."""

import os
from pathlib import Path

import msgspec
import pytest

from gateway.process_identity import Owner, boot_id, current_owner, start_ticks


def test_this_process_is_alive() -> None:
    owner = current_owner()
    assert owner.pid == os.getpid()
    assert owner.start > 0
    assert owner.is_alive()


@pytest.mark.parametrize("change", [{"start": 1}, {"pid": 2**22 + 1}, {"boot_id": "another"}, {"host": "elsewhere"}])
def test_another_start_pid_boot_or_host_is_another_process(change: dict[str, object]) -> None:
    assert not msgspec.structs.replace(current_owner(), **change).is_alive()


def test_the_command_name_cannot_forge_the_start_time(tmp_path: Path) -> None:
    process = tmp_path / "7"
    process.mkdir()
    fields = " ".join(str(number) for number in range(3, 53))
    (process / "stat").write_text(f"7 (evil) 1 2 (x) {fields}\n")
    assert start_ticks(7, proc=tmp_path) == 22
    assert Owner(host="h", pid=7, start=22, boot_id=boot_id()).is_alive(host="h", proc=tmp_path)


@pytest.mark.parametrize("text", ["", "7 (x) 1 2", "7 (x) " + "z " * 50])
def test_an_unreadable_stat_file_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(text)
    assert start_ticks(7, proc=tmp_path) is None


def test_a_system_without_boot_identifiers_has_an_empty_one(tmp_path: Path) -> None:
    assert boot_id(proc=tmp_path) == ""
    assert boot_id() != ""
