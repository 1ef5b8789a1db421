"""Which entries of a home show."""

from pathlib import Path

import pytest

from drivers.home_view import plain_git_settings, show_claude_state, show_home
from drivers.view import View


@pytest.fixture
def view() -> View:
    return View(empty_file="/e/file", empty_directory="/e/dir")


def test_links_stay_links_and_other_things_stay_out(view: View, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "file").touch()
    (tmp_path / ".secret").touch()
    show_home(view, str(tmp_path))
    assert view.options[-5:-2] == ["--ro-bind-try", f"{tmp_path}/file", f"{tmp_path}/file"] or (
        "--symlink" in view.options
    )
    assert view.is_visible(f"{tmp_path}/file")
    assert not view.is_visible(f"{tmp_path}/.secret")
    assert not view.is_visible(f"{tmp_path}/link")


@pytest.mark.parametrize(("text", "hidden"), [("[build]\njobs = 2", False), ("[registry]\ntoken = 'x'", True)])
def test_cargo_settings_show_unless_they_hold_a_token(view: View, tmp_path: Path, text: str, hidden: bool) -> None:
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo" / "config.toml").write_text(text)
    show_home(view, str(tmp_path))
    assert view.is_visible(f"{tmp_path}/.cargo/config.toml") is not hidden


def test_only_plain_git_settings(tmp_path: Path) -> None:
    assert plain_git_settings(str(tmp_path)) == ""
    (tmp_path / ".gitconfig").write_text(
        '[user]\n name = Jo\n email = "quoted@x"\n signingkey = K\n[Init]\n\tdefaultBranch = main\n'
        "[core]\n editor = evil\n fsmonitor = evil\n autocrlf = input # comment\n eol = lf\n"
        '[credential "https://x"]\n name = evil\n[user] name = evil\n'
    )
    assert (
        plain_git_settings(str(tmp_path)) == "[user]\n\tname = Jo\n[init]\n\tdefaultBranch = main\n[core]\n\teol = lf\n"
    )


def test_the_state_of_claude_code(view: View, tmp_path: Path) -> None:
    assert show_claude_state(view, str(tmp_path)) == ()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".claude").symlink_to("elsewhere")
    assert show_claude_state(view, str(tmp_path)) == ()
    (tmp_path / ".claude").unlink()
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").touch()
    state = f"{tmp_path}/.claude"
    assert show_claude_state(view, str(tmp_path)) == (f"{state}:{state}",)
    assert view.options == ["--bind", state, state, "--ro-bind", f"{state}/settings.json", f"{state}/settings.json"]
