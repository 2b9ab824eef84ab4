"""What the suite measures, and how a node of a fleet does it."""
