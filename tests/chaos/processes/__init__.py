"""Real processes, each a fork of one that has imported everything: killed, stopped, woken when a seed says so."""
