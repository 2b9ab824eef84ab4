"""Pictures as SVG files, drawn by matplotlib: for Markdown, paper and browsers without JavaScript.

Imports charts and everything below the report.
"""
