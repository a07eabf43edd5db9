import subprocess
import sys

import pytest

from entourage import engrave


def test_every_public_name_is_there() -> None:
    assert set(engrave.__all__) <= set(dir(engrave))
    for name in engrave.__all__:
        found = getattr(engrave, name)
        assert found.__name__ == name
        assert found.__module__.startswith("entourage.engrave.")
    with pytest.raises(AttributeError, match=r"'entourage.engrave' has no attribute 'Nothing'"):
        engrave.Nothing  # noqa: B018


def test_the_table_of_classes_needs_no_engraver() -> None:
    code = "import sys, entourage.symbols; print([m for m in ('verovio', 'cv2', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
