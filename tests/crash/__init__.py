"""Processes that die at single file operations, and what their successors make of it."""
