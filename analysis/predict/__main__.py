"""`python -m analysis.predict`."""

from analysis.predict.command import main

if __name__ == "__main__":
    raise SystemExit(main())
