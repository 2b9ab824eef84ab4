"""The page's sections, each a function from records to lines of Markdown.

Imports charts and everything below the report.
"""
