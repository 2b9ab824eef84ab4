"""What bounds a row: measured roofs, levels of memory, the link, the launch; `load` gives rows with their share of the roof.

Imports the ground.
"""


def load(*runs):
    """Result files, run folders or machine folders as one pandas DataFrame, with each row's share of its roof.

    Raises: FileNotFoundError when a run has no result file.
    """
    from analysis.roofline import frame  # pandas and NumPy, which `python -m analysis.roofline --help` does without

    return frame.load(*runs)
