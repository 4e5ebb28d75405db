"""Certify or classify with a smoothed classifier: a batch, or a data set into a file."""
