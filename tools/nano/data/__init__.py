"""Generated training data: every family makes conversations from seeds, for training or for a held-out split."""
