"""`python -m analysis.report RUN... [-o DIR]`."""

import sys

from analysis.report.command import main

if __name__ == "__main__":
    sys.exit(main())
