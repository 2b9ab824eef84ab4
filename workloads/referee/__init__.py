"""Our clocks beside outsiders', and our verdicts on rows whose truth is known.

`python -m workloads.referee`; imports the harness and all of `analysis`.
"""
