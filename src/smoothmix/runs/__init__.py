"""Run folders: where things are, how to load one, the zoo."""
