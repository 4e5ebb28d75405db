"""Networks by name, and their weights."""
