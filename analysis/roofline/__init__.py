"""The roof that bounds each row: measured arithmetic, memory levels, link or launch; `load` gives rows with their roof's share.

Imports the ground.
"""


def load(*runs):
    """Result files, run folders or machine folders as one pandas DataFrame, with each row's share of its roof.

    Raises: FileNotFoundError when a run has no result file.
    """
    from analysis.roofline import frame  # pandas and NumPy, which `python -m analysis.roofline --help` does without

    return frame.load(*runs)
