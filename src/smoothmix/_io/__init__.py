"""Files, locks, TOML and text: everything that touches the disk goes through here. No torch at import."""
