"""Tests: real catalogs, real files, time as an argument."""
