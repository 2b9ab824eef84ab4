"""Shared by the kernels on CPUs: vector and tile instructions, packed operands, matrix products. Imports the problems alone."""
