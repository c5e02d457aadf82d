"""What benchmarks are made of: sizes and tables of results, peers, synthetic txlogs, servers behind latency."""
