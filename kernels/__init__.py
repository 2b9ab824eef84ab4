"""What is computed, and every way Crossover computes it."""
