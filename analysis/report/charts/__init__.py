"""Charts as records: what the page draws by JavaScript and writes as a table under it.

Imports everything below the report.
"""
