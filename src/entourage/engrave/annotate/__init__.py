"""Classes, musical attributes and grouping of the marks on a page."""
