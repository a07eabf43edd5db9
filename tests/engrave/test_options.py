import pytest

from entourage.engrave.options import PageOptions


def test_default_page_size_is_that_of_deepscores() -> None:
    options = PageOptions()
    assert (options.width, options.height, options.interline, options.dpi) == (1894, 2668, 20, 400)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interline": 1.0}, r"interline is 1.0; expected 4 to 100 pixels"),
        ({"width": 100}, r"width is 100; expected 400 \(20 interlines\) to 20000 pixels"),
        ({"height": 30000}, r"height is 30000; expected 400 \(20 interlines\) to 20000 pixels"),
        ({"dpi": 0.0}, r"dpi is 0.0; expected 1 to 100000"),
        ({"dpi": float("nan")}, "dpi is nan; expected 1 to 100000"),
        ({"margin": -1}, "margin is -1; expected 0 to 200 pixels"),
    ],
)
def test_invalid_sizes_raise(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PageOptions(**arguments)  # type: ignore[arg-type]
