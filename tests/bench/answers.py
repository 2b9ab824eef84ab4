"""What a person gets of the commands: how wide and how soon they answer on a terminal."""

import on_terminal
from must_reach import table


def main() -> int:
    figures, faults = on_terminal.figures()
    return table("answers", "Answers on a terminal", figures, [f"- `{fault}`" for fault in faults])


if __name__ == "__main__":
    raise SystemExit(main())
