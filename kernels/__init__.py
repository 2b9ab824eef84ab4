"""The problems that Crossover computes, and every kernel that computes them."""
