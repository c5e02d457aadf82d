"""Pure tests of what a tick decides: no storage, no catalog."""
