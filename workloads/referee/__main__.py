"""`python -m workloads.referee`."""

from workloads.referee.command import main

if __name__ == "__main__":
    raise SystemExit(main())
