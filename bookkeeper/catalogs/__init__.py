"""Catalogs of our own, behind pyiceberg's catalog interface."""
