"""Result files in the formats of other tools: Google Benchmark, Bencher, github-action-benchmark; CSV."""

import argparse
import errno
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from analysis import metrics
from workloads import help_screen, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

if TYPE_CHECKING:
    from analysis.stats import Estimate
    from workloads.records import Loaded, Measurement, Run, Samples

QUESTION = "How do other tools get the results?"
EXAMPLE = "python -m analysis.export reports/nvidia-h200/suite --to bencher"
LONG = """Writes the rows of RUN that have a time: google-benchmark (JSON that its compare.py reads; a block is a repetition),
bencher (Bencher Metric Format), github (github-action-benchmark, smaller is better), csv (all columns)."""
_NS = 1e9


def parser() -> CommandParser:
    """The parser of `python -m analysis.export`."""
    csv = "python -m analysis.export reports/nvidia-h200/suite --to csv -o rows.csv"
    export_parser = CommandParser(
        module="analysis.export",
        description=LONG,
        examples=(EXAMPLE, csv),
        question=QUESTION,
        brief_flags=("--to",),
    )
    runs = "result files, run folders, machine folders or saved names"
    export_parser.add_argument("runs", nargs="+", metavar="RUN", help=runs)
    export_parser.add_argument_group(
        "columns of csv, their units, and which is better",
        help_screen.verbatim(metrics.columns_help(metrics.COLUMNS)),
    )
    export_parser.add_argument("--to", choices=TO, required=True, help="the format")
    file = "a file that does not exist yet, instead of stdout"
    export_parser.add_argument("-o", "--output", metavar="FILE", help=file)
    return export_parser


def timed(loaded: "Loaded") -> "list[tuple[Measurement, Samples]]":
    """(row, samples) of the rows that have a time: the GPU's own clock if there is one, else calls that are waited for."""
    from analysis.stats import judged_by

    rows = [(m, judged_by(m)) for m in loaded.measurements]
    return [(m, samples) for m, samples in rows if samples]


def name(m: "Measurement") -> str:
    """A row's name without blanks, unique within a run: `matmul/numpy/blas/m:64/n:64/k:64/threads:1`."""
    from analysis import labels

    return labels.row(m, "/", ":")


def google_benchmark(loaded: "Loaded") -> dict:
    """The rows as Google Benchmark's JSON: for each row an `iteration` entry for each visit to it (repetition).

    Times are in nanoseconds; real_time and cpu_time are the same. FLOPs and bytes a second are counters.
    Source: google/benchmark, docs/user_guide.md and tools/gbench/report.py, which reads run_name, run_type, real_time, cpu_time
    and time_unit.
    """
    benchmarks = []
    for m, samples in timed(loaded):
        times = [_NS * s for s in samples.medians.values()]
        row = {"run_name": name(m), "repetitions": len(times), "threads": m.threads or 1, "time_unit": "ns"}
        counts = {"flops_per_s": m.problem.flops, "bytes_per_second": m.problem.bytes_moved}
        for i, t in enumerate(times):
            visit = {"name": name(m), "run_type": "iteration", "repetition_index": i, "iterations": samples.calls}
            rates = {unit: _NS * n / t for unit, n in counts.items() if n}
            benchmarks.append({**row, **visit, "real_time": t, "cpu_time": t, **rates})
    return {"context": _context(loaded.last), "benchmarks": benchmarks}


def _context(run: "Run | None") -> dict:
    """The machine, software and time of a run, as Google Benchmark's `context`; {} without a run."""
    if run is None:
        return {}
    here = run.machine
    named = {"date": run.started_at, "host_name": here.key, "executable": run.command, "num_cpus": here.cores}
    return named | {"cpu": here.cpu, "gpus": [gpu.name for gpu in here.gpus], "commit": run.commit, **run.software}


def bencher(loaded: "Loaded") -> dict:
    """The rows in Bencher Metric Format: row's name -> `latency` in nanoseconds with the ends of its interval, and
    `flops-per-second` if it counts FLOPs. Source: bencher.dev, reference "Bencher Metric Format"."""
    from analysis.stats import median_of

    metrics_of_row = {}
    for m, samples in timed(loaded):
        time = median_of(samples)
        metrics_of_row[name(m)] = {"latency": _bencher_metric(time * _NS)}
        if m.problem.flops:
            metrics_of_row[name(m)]["flops-per-second"] = _bencher_metric(m.problem.flops / time)
    return metrics_of_row


def _bencher_metric(e: "Estimate") -> dict[str, float]:
    """A number with its interval as a metric of Bencher."""
    return {"value": e.value, "lower_value": e.low, "upper_value": e.high}


def github(loaded: "Loaded") -> list[dict]:
    """The rows for github-action-benchmark, as its customSmallerIsBetter: a list of name, unit, value, range, extra. Source: its
    README."""
    from analysis.stats import median_of

    entries = []
    for m, samples in timed(loaded):
        time = median_of(samples)
        error = max(time.high - time.value, time.value - time.low)
        extra = [f"{samples.clock}, {len(samples.seconds)} samples in {len(samples.medians)} blocks", *m.flags]
        entries.append(
            {
                "name": name(m),
                "unit": "ns",
                "value": _NS * time.value,
                "range": f"± {_NS * error:.6g}",
                "extra": "\n".join(extra),
            }
        )
    return entries


def table(loaded: "Loaded") -> str:
    """The rows as csv, with every column of `workloads.results.load()`."""
    from analysis.analysis import Analysis
    from analysis.roofline.frame import frame
    from analysis.table import cell

    analysis = Analysis.from_loaded(loaded)
    rows = frame(analysis.rows, analysis.roofs)
    return rows.map(cell).to_csv(index=False, lineterminator="\n")


AS_JSON = {"google-benchmark": google_benchmark, "bencher": bencher, "github": github}
TO = (*AS_JSON, "csv")


def text(loaded: "Loaded", to: str) -> str:
    """The rows as text in one of the formats TO."""
    import json

    if to == "csv":
        return table(loaded)
    return json.dumps(AS_JSON[to](loaded), indent=1, allow_nan=False) + "\n"


class ExportPlan(NamedTuple):  # msgspec may not be installed when this module is imported
    """Runs of one machine to write in another tool's format."""

    #: Result files, run folders, machine folders or saved names.
    runs: tuple[str, ...]
    #: The format: one of TO.
    to: str
    #: A file that does not exist yet; "" for stdout.
    output: str

    @classmethod
    def from_flags(cls, flags: argparse.Namespace) -> "ExportPlan":
        """The plan of a command's flags.

        Raises: options.Usage for a folder to write to, and for a run that cannot be read or has no time.
        """
        from analysis.compare import command

        if flags.output and os.path.isdir(flags.output):
            file = os.path.join(flags.output, "rows.csv" if flags.to == "csv" else "rows.json")
            message = f"{flags.output} is a folder; -o takes a file"
            raise options.Usage(message, wrong="--output", right=f"-o {file}")
        for run in flags.runs:
            command.read(run)
        if flags.output:
            _require_new(flags.output)
        return cls(runs=tuple(flags.runs), to=flags.to, output=flags.output or "")


def _require_new(path: str) -> None:
    """Raises Usage for a path that exists already or cannot be written."""
    from workloads.records import command_lines, regular_files

    reason = os.strerror(errno.EEXIST) if os.path.lexists(path) else regular_files.unwritable(path)
    if reason:
        suffix = os.path.splitext(path)[1]
        free = command_lines.unused(f"rows{suffix}")
        raise options.Usage(f"cannot write {path}: {reason}", wrong="--output", right=f"-o {free}")


def _run(plan: ExportPlan) -> int:
    """Writes the runs' rows in the format of the plan to its file, or to stdout. Returns the exit status.

    Raises: options.Usage for runs of several machines.
    """
    from analysis.compare import comparison
    from workloads import records

    loaded = records.read(*plan.runs)
    machines = comparison.machine_keys(loaded.runs)
    if len(machines) > 1:
        raise options.Usage(
            f"these runs are of several machines ({', '.join(sorted(machines))}); export each by itself",
            f"python -m analysis.export {plan.runs[0]} --to {plan.to}",
        )
    exported = text(loaded, plan.to)
    if plan.output:
        _write(plan.output, exported)
    else:
        sys.stdout.write(exported)
    return options.OK


def _write(path: str, exported: str) -> None:
    """Writes a new file and prints its path, on stderr where stdout cannot be written.

    Raises: options.Usage for one that is there, or cannot be written.
    """
    try:
        file = open(path, "x", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise options.Usage(f"cannot write {path}: {error.strerror}", wrong="--output") from error
    try:
        with file:
            file.write(exported)
    except OSError as error:
        os.unlink(path)  # ours, and not whole
        raise options.Usage(f"cannot write {path}: {error.strerror}", wrong="--output") from error
    try:
        print(path, flush=True)
    except OSError:  # the file is written all the same
        terminal.discard(sys.stdout)
        terminal.note(path)


main = running.main_function(parser, make_plan=ExportPlan.from_flags, carry_out=_run)


if __name__ == "__main__":
    sys.exit(main())
