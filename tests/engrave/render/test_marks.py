import numpy as np

from entourage.engrave.render.marks import Group, Mark


def test_ancestors_are_ordered_from_the_inside_out() -> None:
    measure = Group(("measure", "m1"), "m")
    staff = Group(("staff",), "s", measure)
    assert [group.id for group in staff.ancestors()] == ["s", "m"]
    assert staff.closest("measure") is measure
    assert staff.closest("measure", "staff") is staff
    assert staff.closest("m1") is None  # the first class is the kind
    assert Group().kind == ""


def test_rotation_applies_to_all_coordinates_of_a_mark() -> None:
    mark = Mark("line", np.array([[1.0, 0, 2, 0]]), Group(), x=1, y=0, points=np.array([[1.0, 0], [2, 0]]))
    mark.rotate(90, 0, 0)
    np.testing.assert_allclose(mark.edges, [[0, 1, 0, 2]], atol=1e-12)
    np.testing.assert_allclose(mark.points, [[0, 1], [0, 2]], atol=1e-12)
    np.testing.assert_allclose([mark.x, mark.y], [0, 1], atol=1e-12)
