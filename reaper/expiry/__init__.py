"""Expiry: plan, journal, guarded commit, verification; no file is deleted here."""
