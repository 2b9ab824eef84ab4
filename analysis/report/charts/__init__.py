"""Charts as records: the page draws them by JavaScript with a table under each, svg.py by matplotlib.

Imports everything below the report.
"""
