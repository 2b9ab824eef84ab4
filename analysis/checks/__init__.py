"""Whether rows can be trusted: what they show against themselves, and what the referee found.

Imports the ground, roofline, crossover and training.
"""
