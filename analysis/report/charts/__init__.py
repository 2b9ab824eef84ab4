"""Charts as records, and the pictures drawn of them.

Imports everything below the report.
"""
