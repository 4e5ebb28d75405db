"""Files, locks, TOML and text: all access to the disk. Torch-free, but for `untrusted`."""
