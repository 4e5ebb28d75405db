"""The measurements of the paper, on any model: one study a file."""
