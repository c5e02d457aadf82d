"""Folds equality deletes into position deletes, which every reader applies fast."""
