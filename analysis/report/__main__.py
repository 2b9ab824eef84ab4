"""`python -m analysis.report RUN... [-o DIR]`."""

from analysis.report.command import main

if __name__ == "__main__":
    raise SystemExit(main())
