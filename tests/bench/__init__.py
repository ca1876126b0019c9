"""What gpushim costs, measured against the low-level runtime alone: ``python -m tests.bench``.

docs/benchmarks.md says what each row means and how it is measured.
"""
