"""`python -m analysis.explain`."""

from analysis.explain.command import main

if __name__ == "__main__":
    raise SystemExit(main())
