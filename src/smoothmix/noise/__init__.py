"""Noise distributions, and random numbers by address. No torch."""
