"""Scripts and styles of reports, joined from the ES modules in `static/`, which the page of `entourage serve` shares.

A report is one file that works without a server, so that the text of the modules is written into it. Modules are joined
in the order of their imports, without the words `import` and `export`; the names that they define are distinct.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
ENTRIES = ("report.js", "measures.js")  # modules that reports begin with
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(?P<file>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:class|function|const|async) )", re.MULTILINE)
_NAME = re.compile(r"^(?:class|(?:async )?function|const|let) (\w+)", re.MULTILINE)


@cache
def bundle(entry: str = "report.js") -> str:
    """Return a module and all modules that it imports as one script.

    Args:
        entry: file of the module in `static`.

    Raises:
        ValueError: two modules define one name, or one imports or exports in a form that is not supported.
    """
    modules: dict[str, str] = {}
    _collect(entry, modules)
    script = "\n".join(modules.values())
    names = _NAME.findall(script)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or re.search(r"^\s*(?:import|export)\b|</script", script, re.MULTILINE):
        raise ValueError(
            f"{entry}: {', '.join(repeated) or 'import or export'}; expected distinct names and plain imports"
        )
    return script


def script_policy() -> str:
    """Return the sources of a content security policy that allows the scripts of reports and no others."""
    digests = (hashlib.sha256(bundle(entry).encode()).digest() for entry in ENTRIES)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


@cache
def style() -> str:
    """Return the style of the elements that the scripts add."""
    return (STATIC / "controls.css").read_text(encoding="utf-8")


def _collect(file: str, modules: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    if file in modules:
        return
    text = (STATIC / file).read_text(encoding="utf-8")
    for match in _IMPORT.finditer(text):
        _collect(match["file"], modules)
    modules[file] = _EXPORT.sub("", _IMPORT.sub("", text))
