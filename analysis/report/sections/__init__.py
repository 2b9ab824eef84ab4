"""The page's sections, each a function from records to blocks.

Imports charts and everything below the report.
"""
