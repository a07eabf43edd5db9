"""Pages of the site that are made from files elsewhere in the repository: notebooks, CONTRIBUTING.md, CHANGELOG.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the figures of `results/` that pages show."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    for source, name in ((ROOT / "CONTRIBUTING.md", "contributing.md"), (ROOT / "CHANGELOG.md", "changes.md")):
        text = source.read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    for path in sorted((ROOT / "results").glob("*.svg")):
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point to the copies of the figures in the site."""
    return re.sub(r"\]\(\s*\.\./results/(\w+\.svg)\)", r"](results/\1)", markdown)


def notebook_page(path: Path) -> str:
    """Return the cells of a notebook as Markdown, with a line that names its file."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [
        "".join(cell["source"]) if cell["cell_type"] == "markdown" else f"```python\n{''.join(cell['source'])}\n```"
        for cell in cells
    ]
    parts.insert(1, f"The notebook is `notebooks/{path.name}`.")
    return "\n\n".join(parts) + "\n"
