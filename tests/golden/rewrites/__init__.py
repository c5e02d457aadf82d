"""Golden rewrites: they never change, and every later version reads them the same (tests/core/test_rewrite.py)."""
