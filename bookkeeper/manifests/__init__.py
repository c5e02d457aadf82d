"""Manifest lists and manifests of tables: read in one way, remembered in one cache, and written with their blocks."""
