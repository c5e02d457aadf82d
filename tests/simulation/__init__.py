"""The production code on a virtual clock, with storage and catalog in memory, step by step and by seed."""
