"""What a command says last: how a sweep ended, and what failed; of trainings and inference how much of a plan is here, and an
error line with a command that works for each model that failed and where nothing could be measured."""

import argparse
import os
import re
import sys
from collections import Counter

import msgspec

from workloads import options
from workloads.frameworks import studies
from workloads.harness import sweep
from workloads.harness.plan import name, note
from workloads.machine import facts
from workloads.records import Measurement, settings

_DOCTOR = "python -m workloads.doctor"
_SMALL = 1000  # samples of the command that fits


def resume_command(outcome: sweep.Outcome) -> str:
    """The command that finishes a sweep that was stopped."""
    base = sweep.command_without(outcome.run.command, "--resume")
    return f"{base} --resume" if " -o" in base or "--output" in base else f"{base} -o {outcome.path.parent} --resume"


def ended(outcome: sweep.Outcome, args: argparse.Namespace) -> int:
    """Says on stderr what the reader should know at the end: how it stopped, what failed, where the file is."""
    from analysis.checks import rows as row_checks

    bad = [m for m in outcome.measurements if m.status in ("failed", "wrong")]
    for m in bad[:5]:
        print(f"{m.status}: {name(m.row)}: {m.reason}", file=sys.stderr)
    if len(bad) > 5:
        print(f"... and {len(bad) - 5} more failed or wrong rows in the file", file=sys.stderr)
    skipped = Counter(re.sub(r", [^,]* are free$", "", m.reason) for m in outcome.measurements if m.status == "skipped")
    for reason, rows in skipped.most_common(None if args.verbose else 5):
        said = f"skipped: {rows} row{'s' * (rows != 1)}: {reason}"
        print(said, file=sys.stderr) if outcome.exit_code == options.MISSING else note(args, said)
    for line in row_checks.lines(outcome.measurements, outcome.run.machine):
        note(args, line)
    if outcome.stopped:
        how = options.typed(resume_command(outcome))
        print(f"stopped by {outcome.stopped} with {outcome.left} rows to go; finish with:\n  {how}", file=sys.stderr)
    if not args.quiet:
        print(f"results: {os.path.relpath(outcome.path)}", file=sys.stderr)
    return outcome.exit_code


def worst(codes: list[int]) -> int:
    """The exit code of several parts: a failed row or a refusal tells; a part that is not there does only when all are."""
    told = next((c for c in (options.FAILED, options.USAGE) if c in codes), None)
    return told if told is not None else options.OK if options.OK in codes else options.MISSING


def said(outcome, workload: str, example: str, names: list[str] | None = None) -> None:
    """Prints an error line for each model that failed, with a command that works: of a user's own model one of a model that is
    here, else the doctor's. `names`: the studies that were asked for.

    Raises: Missing, with such a command, where not a row could be measured.
    """
    failed = {
        m.problem.model: m
        for m in reversed(outcome.measurements)
        if m.status == "failed" and hasattr(m.problem, "model")
    }
    for model, m in sorted(failed.items()):
        tip = example if settings.own_model(model) else _DOCTOR
        print(f"error: {model} on {m.settings.device}: {m.reason}\n  try: {options.typed(tip)}", file=sys.stderr)
    if outcome.exit_code != options.MISSING:
        return
    skipped = [m for m in outcome.measurements if m.status == "skipped"]
    if skipped:
        reason, rows = Counter(m.reason for m in skipped).most_common(1)[0]
        first = next(m for m in skipped if m.reason == reason)
        more = f" ({rows} of {len(skipped)} rows)" if rows < len(skipped) else ""
        raise options.Missing(
            f"nothing could be measured: {reason}{more}", _instead(first, workload, example, names or [])
        )


def part(outcome) -> list[str]:
    """How much of a plan that was stopped is here, for the head of what is said of it."""
    there = len(outcome.measurements)
    return (
        [f"{there} of {there + outcome.left} rows are here, and what follows is said of these."] if outcome.left else []
    )


def _instead(m: Measurement, workload: str, example: str, names: list[str]) -> str:
    """A command like the one whose rows were skipped, that works here."""
    apart = [name for name in names if name in studies.EXPERIMENTS]
    if apart and m.reason.startswith("no GPU"):
        return f"python -m workloads.training --study {' '.join(apart)} --device cpu"
    if ": " in m.reason and "pip install" in m.reason:
        return m.reason.rpartition(": ")[2]
    small = {"batch": min(m.problem.batch, _SMALL)} | (
        {"samples": _SMALL} if hasattr(m.problem, "samples") else {"batch": 1}
    )
    fits = msgspec.structs.replace(m.problem, **small)
    if "GiB" in m.reason and 2 * fits.footprint_bytes < facts.memory_available("cpu"):
        sizes = f"--samples {_SMALL}" if "samples" in small else "--batch 1"
        return f"python -m workloads.{workload} --model {m.problem.model} {sizes}"
    return example
