"""One training explained on both devices: predictions side by side, what would help, and its check by measuring.

Imports every room below; its command (`python -m analysis.explain`) may use all.
"""
