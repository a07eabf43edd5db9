import subprocess
import sys

import pytest

from entourage import engrave


def test_public_names_are_importable() -> None:
    assert set(engrave.__all__) <= set(dir(engrave))
    for name in engrave.__all__:
        found = getattr(engrave, name)
        assert found.__name__ == name
        assert found.__module__.startswith("entourage.engrave.")
    with pytest.raises(AttributeError, match=r"'entourage.engrave' has no attribute 'Nothing'"):
        engrave.Nothing  # noqa: B018


def test_symbols_import_no_engraver() -> None:
    code = "import sys, entourage.symbols; print([m for m in ('verovio', 'cv2', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
