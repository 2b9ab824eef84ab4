"""Times of a training predicted from a machine's microbenchmarks, part by part, with their errors.

Imports every room below; its command (`python -m analysis.predict`) may use all.
"""
