"""What is released agrees: versions, pinned packages, and the page for a package index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from entourage import __version__
from entourage.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    return {
        canonicalize_name(name): number for name, number in re.findall(r"^([\w.-]+)==([^ ;\n]+)", text, re.MULTILINE)
    }


def test_versions_agree() -> None:
    weights = tomllib.loads((ROOT / "weights-handwriting" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert weights["version"] == __version__
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"# Changes\n\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_lock_has_the_pinned_packages_with_hashes() -> None:
    locked, constraints = pins(ROOT / "requirements.lock"), pins(ROOT / "constraints.txt")
    assert {name: locked[name] for name in locked.keys() & constraints} == {
        name: constraints[name] for name in locked.keys() & constraints
    }
    entries = re.split(r"\n(?=\w)", (ROOT / "requirements.lock").read_text(encoding="utf-8"))[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    extras = (Requirement(text) for text in PROJECT["optional-dependencies"]["all"])
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for e in extras for name in e.extras)]
    for requirement in (Requirement(text) for group in groups for text in group):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


def test_licences_of_the_distributions() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Attribution-NonCommercial-ShareAlike 4.0" in (ROOT / "weights-handwriting" / "LICENSE").read_text("utf-8")
    assert not list((ROOT / "src" / "entourage" / "weights").glob("*muscima*"))


def test_the_page_for_a_package_index_has_no_relative_links() -> None:
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    assert not re.findall(r"\]\((?!https?://)", text)


def test_the_installation_page_names_every_extra() -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(f"`[{name}]`" in text for name in EXTRAS)
