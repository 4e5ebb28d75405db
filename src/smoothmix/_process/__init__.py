"""This process: its rank among others, and the signals that ask it to stop. No torch."""
