"""Bounds, radii and tests: pure functions of counts. No torch."""
