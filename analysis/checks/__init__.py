"""Whether rows can be trusted: what they show against themselves.

Imports the ground, roofline, crossover and training.
"""
