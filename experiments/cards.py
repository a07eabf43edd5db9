"""Writes the card of the weights that come with the package: what each is, and how it was made.

python -m experiments.cards

Everything is read from the files themselves and from results/.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open

from entourage.io.files import write_text
from experiments.command import run_command
from experiments.detect_deepscores import HANDWRITTEN, SHIPPED
from experiments.ledger import RESULTS
from experiments.tables import table

WEIGHTS = Path(__file__).parent.parent / "src" / "entourage" / "weights"
MADE_BY = {
    "cluster-points": "python -m experiments.cluster_points --networks default --from points --minutes 9 "
    "--ship src/entourage/weights/cluster-points.safetensors",
    "detect": "python -m experiments.detect_pages --scores SCORES --out pages --divide; "
    "python -m experiments.detect_pages --out pages --sets learn; "
    "entourage detect train pages/learn-* --out run --minutes 7",
    "detect-muscima": "python -m experiments.detect_deepscores --muscima --minutes 4.5",
}
LEARNED_FROM = {
    "cluster-points": "2D sets without end: rings, moons and Gaussians, made by this package; 7,575 steps with "
    "clusters of about equal size, then on from there with unequal ones among them, twice: for 2.8 minutes and for 9. "
    "What the command begins with, `points`, was each time the network before it",
    "detect": "pages engraved by this package: OpenScore Lieder (CC0) clean, as scans and as photographs, in four of "
    "Verovio's five fonts, and composed pages; no work of the test sets",
    "detect-muscima": "the 110 pages of MUSCIMA++ 2.0 (CC BY-NC-SA 4.0) that are for training, on from `detect`",
}
LICENCES = {"detect-muscima": "CC BY-NC-SA 4.0, as what it learned from: not for commerce"}
OWN_LICENCE = "Apache-2.0"
TRAINED_ON = "one NVIDIA H200"


def main() -> None:
    """Writes src/entourage/weights/README.md."""
    lines = [
        "# Weights",
        "",
        "Trained by this project. Made by `python -m experiments.cards`.",
        "",
    ]
    for name, files in _models().items():
        facts = [
            ("files", ", ".join(f"`{file.name}`" for file in files)),
            ("size", f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB, 16 bits a weight"),
            ("licence", LICENCES.get(name, OWN_LICENCE)),
            ("learned from", LEARNED_FROM[name]),
            ("made by", f"`{MADE_BY[name]}`"),
            ("trained on", TRAINED_ON),
            *((key, value) for key, value in _notes(files[0]).items() if value),
            ("figures", _figures(name)),
        ]
        lines += [f"## {name}", "", table(("", ""), facts), ""]
    write_text(WEIGHTS / "README.md", "\n".join(lines))


def _models() -> dict[str, list[Path]]:
    """Files of each model by its name; one in several pieces has several."""
    models: dict[str, list[Path]] = {}
    for file in sorted(WEIGHTS.glob("*.safetensors")):
        models.setdefault(file.stem.split("-0")[0], []).append(file)
    return models


def _notes(file: Path) -> dict[str, str]:
    with safe_open(file, framework="pt") as content:
        heads = [json.loads(value) for key, value in (content.metadata() or {}).items() if key.startswith("entourage.")]
    return {key: str(value) for head in heads for key, value in head.get("notes", {}).items()}


def _figures(name: str) -> str:
    """What the results say of it, in a line."""
    if name == "cluster-points":
        rows = json.loads((RESULTS / "cluster_points.json").read_text(encoding="utf-8"))["rows"]
        row = rows["default, seed 0"]
        other = rows["unequal: default, seed 0"]
        equal = f"misclassified {row['mr']:.1%}, NMI {row['nmi']:.3f} on {row['sets']} unseen sets of {row['n']} points"
        return f"{equal}; {other['mr']:.1%} on as many of {other['n']} in clusters of unequal size"
    rows = json.loads((RESULTS / "detect_deepscores.json").read_text(encoding="utf-8"))["rows"]
    means = {key.partition(": ")[2]: row for key, row in rows.items() if key.startswith(f"{SHIPPED}: ")}
    means = {key: row for key, row in means.items() if (key == HANDWRITTEN) == (name == "detect-muscima")}
    return "; ".join(f"{key}: mAP {100 * row['mAP']:.1f}, AP50 {100 * row['AP50']:.1f}" for key, row in means.items())


if __name__ == "__main__":
    run_command(main)
