"""The whole pipeline on this machine, as processes: `make demo`."""
