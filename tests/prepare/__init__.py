"""
The step before the tests: fetches and builds what they need and no wheel brings. `make prepare`.
"""
