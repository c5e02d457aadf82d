"""What a person sees of a running bookkeeper: metrics, page and probes."""
