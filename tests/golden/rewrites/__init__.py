"""Golden rewrites: they never change, and every later version reads them the same (tests/contract/test_rewrite.py)."""
