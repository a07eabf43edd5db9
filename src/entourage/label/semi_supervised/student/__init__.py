"""The student: a small residual network trained from random weights on the labels of the rounds, then on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.label.semi_supervised.student.fit import StudentResult, train_student
    from entourage.label.semi_supervised.student.network import StudentBody, student_backbone
    from entourage.label.semi_supervised.student.options import StudentOptions
    from entourage.label.semi_supervised.student.task import StudentTask
    from entourage.label.semi_supervised.student.views import StudentViews

__all__ = [
    "StudentBody",
    "StudentOptions",
    "StudentResult",
    "StudentTask",
    "StudentViews",
    "student_backbone",
    "train_student",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "fit": ("StudentResult", "train_student"),
        "network": ("StudentBody", "student_backbone"),
        "options": ("StudentOptions",),
        "task": ("StudentTask",),
        "views": ("StudentViews",),
    },
)
