"""What trainings cost and when a GPU has made up for its longer start, read from measured rows.

Imports the ground, roofline and crossover.
"""
