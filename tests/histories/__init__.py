"""Random histories of the real product against a plain model, and every reader's view of them."""
