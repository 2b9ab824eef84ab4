"""`python -m analysis.fleet`."""

from analysis.fleet.command import main

if __name__ == "__main__":
    raise SystemExit(main())
