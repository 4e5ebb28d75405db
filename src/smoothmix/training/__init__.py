"""Train a network in a run folder."""
