"""Benchmarks that print measurements of Entourage and comparable libraries on the same data, in one process."""
