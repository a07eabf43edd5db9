from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient
from tests.serve.conftest import BASE, TOKEN
from torch import Tensor, nn

from entourage.embed.index.embedder import Embedder
from entourage.embed.index.vector_index import Index
from entourage.serve.app import build_app
from entourage.serve.guard import Guard
from entourage.serve.search.routes import search_routes
from entourage.serve.search.session import SearchSession

COLORS = {"red": (220, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 220)}


class MeanColor(nn.Module):
    """The mean of each channel."""

    def forward(self, images: Tensor) -> Tensor:
        """Return shape (b, 3)."""
        return torch.as_tensor(images.mean(dim=(2, 3)))


def picture(color: tuple[int, int, int], shade: int = 0) -> Image.Image:
    return Image.new("RGB", (40, 30), tuple(max(0, value - shade) for value in color))


def encoded(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    """A network that describes a picture by its mean colour."""
    return Embedder.load(MeanColor(), size=16, mean=(120.0,) * 3, std=(60.0,) * 3, device="cpu")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Four pictures of each of three colours."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name, color in COLORS.items():
        for number in range(4):
            picture(color, 10 * number).save(folder / f"{name}-{number}.png")
    return folder


@pytest.fixture
def session(images: Path, tmp_path: Path, embedder: Embedder) -> SearchSession:
    """An open index of the pictures."""
    Index.build(images, tmp_path / "index", embedder)
    return SearchSession(tmp_path / "index", images, embedder)


@pytest.fixture
def client(session: SearchSession) -> Iterator[TestClient]:
    """A client that has the token."""
    app = Guard(build_app(search_routes(session), "search.html"), TOKEN, "entourage-8765")
    with TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}) as opened:
        yield opened
