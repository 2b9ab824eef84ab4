"""One of our rows under pyperf, and in the same process by our own clocks: run as a program by the referee, and by pyperf
itself for each of its processes.

python -m workloads.referee.pyperf_child --row JSON --seed 1 --ours FILE --limits JSON --copy-env -o FILE

Both time the very same prepared call, one after the other, each first in every other process: where its arrays lie and what
the host does in those seconds is the same for both. pyperf's own loop is that of its `timeit`.
"""

import pathlib

import msgspec

from workloads.harness.timing import Limits
from workloads.records import Measurement, Row

MODULE = "workloads.referee.pyperf_child"


class Both:
    """A row's call as our own clocks take it: on N(0,1) data, with its threads.

    Raises: ValueError for what pyperf cannot time: several passes a call, or something to be done before each.
    """

    def __init__(self, row: Row, seed: int):
        from kernels import registry
        from workloads.harness import one_row

        self._kernel, self._row, self._seed = registry.find(row.kernel), row, seed
        one_row._use_threads(row)
        self._prepared = one_row._prepared(self._kernel, row, row.problem.inputs(seed))
        if self._prepared.passes != 1 or self._prepared.before:
            raise ValueError(
                f"{row.kernel} does its problem {self._prepared.passes} times a call or needs something before it"
            )
        self.run = self._prepared.run

    def check(self) -> None:
        """Raises: ArithmeticError when the answer is not the reference's."""
        from workloads.harness import one_row

        if not one_row.checked(self._kernel, self._row, self._seed)[0].passed:
            raise ArithmeticError(f"the answer of {self._row.kernel} is not the reference's")

    def ours(self, limits: Limits) -> Measurement:
        """The call by our clocks."""
        from workloads.harness import one_row

        return one_row.measure(self._row, limits, self._seed)


def main() -> None:
    import pyperf

    def more(command: list[str], args) -> None:
        command += ["--row", args.row, "--seed", str(args.seed), "--ours", str(args.ours), "--limits", args.limits]

    runner = pyperf.Runner(program_args=("-m", MODULE), add_cmdline_args=more)
    runner.argparser.add_argument("--row", required=True)
    runner.argparser.add_argument("--seed", type=int, default=1)
    runner.argparser.add_argument("--ours", type=pathlib.Path, required=True)
    runner.argparser.add_argument("--limits", default="{}")
    args = runner.parse_args()
    row = msgspec.json.decode(args.row, type=Row)
    both = Both(row, args.seed) if args.worker else None
    timed = both is not None and not (args.calibrate_loops or args.recalibrate_loops)
    first = timed and len(args.ours.read_bytes().splitlines()) % 2 == 1 if args.ours.exists() else False

    def ours(both: Both) -> None:
        with args.ours.open("ab") as file:
            file.write(msgspec.json.encode(both.ours(msgspec.json.decode(args.limits, type=Limits))) + b"\n")

    if both and not timed:
        both.check()
    if both and first:
        ours(both)
    runner.timeit(row.kernel, stmt="run()", globals={"run": both.run if both else None})
    if both and timed and not first:
        ours(both)


if __name__ == "__main__":
    main()
