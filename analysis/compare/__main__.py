"""`python -m analysis.compare`."""

from analysis.compare.command import main

if __name__ == "__main__":
    raise SystemExit(main())
