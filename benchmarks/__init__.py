"""What it costs, side by side with the peers, in the same run; printed as ratios, for machines are noisy."""
