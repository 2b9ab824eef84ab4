"""All sentences: records in, plain words out.

Imports every room of analysis but report.
"""
