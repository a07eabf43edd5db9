"""Every example of the README and the docs runs: commands and Python code, in the order of their page."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.docs.examples import NAMES, SHORTER, STARTED, prepare
from tests.docs.workspace import PAGES, ROOT, blocks, commands, run_command

from entourage.cli.main import app, leaf_commands

NAMED = {path.relative_to(ROOT).as_posix(): path for path in PAGES}
RUN = [name for name, path in NAMED.items() if {block.language for block in blocks(path)} & {"sh", "python"}]
COMMANDS = dict(leaf_commands(typer.main.get_command(app)))


def shortened(name: str, text: str) -> str:
    """Return code of a page with fewer steps and items."""
    for long, short in SHORTER.get(name, {}).items():
        text = text.replace(long, short)
    return text


@pytest.mark.parametrize("name", RUN)
def test_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    prepare(name, tmp_path)
    namespace: dict[str, Any] = NAMES[name]() if name in NAMES else {}
    for block in blocks(NAMED[name]):
        text = shortened(name, block.text)
        if block.language == "python" and "__name__" in text:  # a script: a command runs it
            Path(re.findall(r"python (\w+\.py)", NAMED[name].read_text())[0]).write_text(text)
        elif block.language == "python":
            exec(compile(text, name, "exec"), namespace)
        elif block.language == "toml" and (file := re.search(r"`(\w+\.toml)`:\n\n```toml", NAMED[name].read_text())):
            Path(file[1]).write_text(text)
        elif block.language == "sh":
            for command in commands(text):
                if not command.startswith(STARTED):
                    run_command(command, tmp_path)


@pytest.mark.parametrize("name", SHORTER)
def test_shortened_text_is_on_its_page(name: str) -> None:
    text = "".join(block.text for block in blocks(NAMED[name]))
    assert [long for long in SHORTER[name] if long not in text] == []


def examples_in(path: Path) -> list[str]:
    """Return the commands of Entourage in blocks of shell code and between backquotes."""
    text = path.read_text(encoding="utf-8")
    inline = re.findall(r"`(entourage [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    shell = [command for block in blocks(path) if block.language == "sh" for command in commands(block.text)]
    return [" ".join(command.split()) for command in [*shell, *inline] if command.startswith("entourage ")]


ALL = sorted({command for path in PAGES for command in examples_in(path)})


@pytest.mark.parametrize("command", ALL)
def test_options_of_all_commands_exist(command: str) -> None:
    """Also those that only appear within a sentence, which may omit arguments."""
    words = [word for word in shlex.split(command, comments=True)[1:] if word != "..."]
    if not words or words[0] in ("--help", "--version", "--install-completion"):
        return
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
    if name is None:  # `engrave SOURCE` is short for `engrave run SOURCE`; or a group of commands
        name = f"{words[0]} run"
        assert name in COMMANDS or any(known.startswith(f"{words[0]} ") for known in COMMANDS), command
    if name in COMMANDS:
        known = {
            option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert [word for word in words if word.startswith("--") and word not in known] == []


@pytest.mark.parametrize("name", [n for n, path in NAMED.items() if any(b.language == "toml" for b in blocks(path))])
def test_files_of_options_are_toml(name: str) -> None:
    for block in blocks(NAMED[name]):
        if block.language == "toml":
            assert tomllib.loads(block.text)
