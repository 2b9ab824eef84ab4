"""One of our rows under pyperf: run as a program by the referee, and by pyperf itself for each of its processes.

python -m workloads.pyperf_child --row JSON --seed 1 --copy-env -o FILE
"""

import sys

import msgspec

from workloads.results import Row

MODULE = "workloads.pyperf_child"


def call(row: Row, seed: int):
    """The row's call as our own clocks take it: on N(0,1) data, with its threads."""
    from kernels import registry
    from workloads import measure

    kernel = registry.find(row.kernel)
    measure._use_threads(row)
    prepared = measure._prepared(kernel, row, measure.inputs(row.problem, seed, False))
    if prepared.passes != 1 or prepared.before:
        raise ValueError(f"{row.kernel} does its problem {prepared.passes} times a call or needs something before it")
    return prepared.run


def main() -> None:
    import pyperf

    def more(command: list[str], args) -> None:
        command += ["--row", args.row, "--seed", str(args.seed)]

    runner = pyperf.Runner(program_args=("-m", MODULE), add_cmdline_args=more)
    runner.argparser.add_argument("--row", required=True)
    runner.argparser.add_argument("--seed", type=int, default=1)
    args = runner.parse_args()
    row = msgspec.json.decode(args.row, type=Row)
    runner.bench_func(row.kernel, call(row, args.seed) if args.worker else lambda: None)


if __name__ == "__main__":
    sys.exit(main())
