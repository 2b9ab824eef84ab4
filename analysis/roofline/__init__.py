"""The hierarchical roofline of both devices: `python -m analysis.roofline RUN...` prints its tables and draws it."""
