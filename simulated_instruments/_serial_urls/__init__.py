"""Handlers of pyserial for URLs of simulated instruments; pyserial finds them by their names."""
