"""Classes, music and grouping of the marks on a page."""
