"""Costs of trainings, and the break-even of a GPU's longer start, read from measured rows.

Imports the ground, roofline and crossover.
"""
