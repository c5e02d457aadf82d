"""Tests of the kernel: store, folder, marks, names, configuration."""
