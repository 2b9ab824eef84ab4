"""Each device of a fleet beside its own baseline and beside the others like it.

Imports every room below; its command (`python -m analysis.fleet`) may use all.
"""
