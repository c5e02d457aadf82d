"""Skimming: proves the records of a manifest without decoding them, and reads the few fields that a commit needs."""

from bookkeeper.format.skim.skimmer import EntrySummary, Skimmer, StatsShape, StatusRow, columns_of, skimmer_for

__all__ = ["EntrySummary", "Skimmer", "StatsShape", "StatusRow", "columns_of", "skimmer_for"]
