"""Writers: Arrow in, data files and one txlog out; no catalog, no catalog credentials."""
