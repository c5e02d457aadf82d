"""Tests of the writers: real files and memory stores, cards made by hand, no catalog."""
