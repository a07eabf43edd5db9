import pytest

from entourage.engrave.options import PageOptions


def test_default_page_size_is_that_of_deepscores() -> None:
    options = PageOptions()
    assert (options.width, options.height, options.interline, options.dpi) == (1894, 2668, 20, 400)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interline": 1.0}, "interline is 1.0"),
        ({"width": 100}, "width is 100"),
        ({"height": 30000}, "height is 30000"),
        ({"dpi": 0.0}, "dpi is 0.0"),
        ({"dpi": float("nan")}, "dpi is nan"),
        ({"margin": -1}, "margin is -1"),
    ],
)
def test_invalid_sizes_raise(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PageOptions(**arguments)  # type: ignore[arg-type]
