"""Two runs row by row: faster, slower, same or can't tell.

Imports every room below; its command (`python -m analysis.compare`) may use all.
"""
