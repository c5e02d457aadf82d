"""Object stores for real: faults on the wire, many objects, credentials, and the whole queue on each."""
