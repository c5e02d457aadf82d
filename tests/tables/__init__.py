"""Many tables in one bookkeeper."""
