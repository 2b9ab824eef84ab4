"""Times the same calls with ours and with outsiders, and puts our verdicts to rows whose truth is known."""

import argparse
import sys
import time

from workloads import options

EXAMPLE = "python -m workloads.referee --fast"
LONG = """Holds our clocks against pyperf's on the CPU and cuda-bench's on the GPU, in turns; measures what single processes of a
row differ by, which `analysis.compare` then never claims less than; and counts false and missed alarms of its verdicts on
pairs that are alike and on planted slow-downs. What a match needs and is not here is left out with the reason; the report
shows what came of it."""
_A_TURN = 3  # processes that time a row both ways, in a turn of the match with pyperf
MATCHES = ("cpu", "gpu", "spread", "verdicts", "rigorous", "restarts")


def parser() -> options.Parser:
    """The command line of python -m workloads.referee."""
    made = options.parser("workloads.referee", LONG, EXAMPLE)
    options.add(
        made,
        f"""
--only MATCH ...  only these: {" ".join(MATCHES)}
--fast            fewer turns, processes and pairs: minutes instead of an hour
--turns N         turns of each side in a match, and processes of a row for the spread, 3 at least: with --resume further ones
                  are added, which tell what other moments change from the fifth on; of those in turns always 5 (5; --fast 2)
--pairs N         pairs of each row for the verdicts, with --resume those that lack (50; --fast 2)
--rows N ...      only these rows of each match, counted from 1""",
        N=_count,
    )
    options.add(
        made,
        """
--seed N =1       seed of the data (1)
--stop-after S    finish the row, exit 0, print how to resume
--resume          add the rows that the run in -o DIR, or the newest, lacks
-o --output DIR   folder of the result file (reports/local/MACHINE/TIME)
-q --quiet        no progress on stderr""",
        N=int,
        S=float,
    )
    return made


def _count(text: str) -> int:
    return options._whole(text, 1, 10_000)


def matches(args: argparse.Namespace) -> list[str]:
    """The matches asked for; untold, all.

    Raises: Usage for an unknown one.
    """
    words = options.words(args.only) or list(MATCHES)
    for word in words:
        if word not in MATCHES:
            raise options.Usage(f"unknown match {word!r}; known: {', '.join(MATCHES)}")
    return words


def plan(args: argparse.Namespace, here) -> list[tuple[str, list]]:
    """(match, its rows) in order, those of GPUs only where there is one."""
    from workloads.referee import outsiders, verdicts

    pairs = verdicts.verdict_rows(here)
    turns = [verdicts.judged(row, verdicts.TURNS) for row in pairs]
    rows: dict[str, list] = {
        "cpu": outsiders.cpu_rows(),
        "gpu": outsiders.gpu_rows(),
        "spread": [*verdicts.spread_rows(here), *turns],
        "verdicts": pairs,
        "rigorous": pairs,
        "restarts": [row for form, row in outsiders.gpu_rows() if form == outsiders.COLD][5:6],
    }
    chosen = options.sizes(args.rows) if args.rows else None
    return [(name, [r for i, r in enumerate(rows[name], 1) if chosen is None or i in chosen]) for name in matches(args)]


def _body(args: argparse.Namespace, command: str) -> int:
    from workloads import records, session
    from workloads.harness import sweep

    made = argparse.Namespace(**vars(args))
    run = sweep.header(made, command)
    begin, held = time.monotonic(), 0
    left_out: list[str] = []
    with records.Writer(sweep.place(made, "referee", run), run, args.resume) as writer, sweep.signals():
        done = {m.key: m for m in writer.done if m.status == "ok"}
        try:
            for name, rows in plan(args, run.machine):
                for taken in _held(name, rows, args, run, done, left_out):
                    for m in taken:
                        if done.get(m.key) is not m:
                            writer.append(m)
                            done[m.key] = m
                        held += 1
                    if args.stop_after and time.monotonic() - begin > args.stop_after:
                        raise sweep.Stopped("stop-after")
        except sweep.Stopped as stop:
            how = options.typed(session.resume_command(sweep.Outcome(run, writer.path, [])))
            print(f"stopped by {stop}; finish with:\n  {how}", file=sys.stderr)
    from analysis.checks import referee

    loaded = records.read(writer.path)
    print("\n".join(referee.lines(loaded)))
    for why in left_out:
        print(f"left out: {why}", file=sys.stderr)
    print(f"results: {writer.path}", file=sys.stderr)
    bad = [m for m in loaded.measurements if m.status in ("failed", "wrong")]
    for m in bad:
        print(f"{m.status}: {m.kernel}: {m.reason}", file=sys.stderr)
    return options.FAILED if bad else options.OK if held else options.MISSING


def _held(name: str, rows: list, args: argparse.Namespace, run, done: dict, left_out: list[str]):
    """The measurements of a match, those at once that were taken together; what is there already is as it is, and what cannot be
    held is left out."""
    from analysis import noise
    from workloads.harness.plan import note
    from workloads.harness.timing import Limits
    from workloads.referee import outsiders, verdicts

    turns = args.turns or (2 if args.fast else 5)
    limits = Limits(0.02, 10, 0.02, 0.5) if args.fast else Limits(max_time=1.0)
    try:
        if name in ("gpu", "restarts"):
            if not run.machine.gpus:
                raise outsiders.Unfit("no GPU here")
            outsiders.version("cuda-bench")
        if name == "gpu":
            for taken in outsiders.gpu(rows, turns, args.seed, done):
                note(args, f"gpu: {len(taken)} rows, a turn of {turns}")
                yield taken
            return
        if name == "spread":
            alone = [row for row in rows if noise.MATCH not in row.settings.switches]
            processes = max(turns, noise.FEWEST)
            note(args, f"spread: {len(alone)} rows, {processes} processes of each in turn")
            yield verdicts.fresh(alone, limits, args.seed, processes, done)
            rows = [row for row in rows if row not in alone]
        for i, row in enumerate(rows, 1):
            note(args, f"[{i}/{len(rows)}] {name}: {row.kernel}")
            old = done.get(row.key)
            if name != "cpu":
                yield from ([m] for m in _judged(name, row, args, run, done))
            elif old and verdicts.REFEREE in old.notes:
                yield [old]
            else:
                yield [outsiders.cpu(row, turns, _A_TURN, limits, args.seed)]
    except outsiders.Unfit as why:
        left_out.append(f"{name}: {why}")


def _judged(name: str, row, args: argparse.Namespace, run, done: dict):
    """The measurements of one row of the matches of several processes: turns of the spread, restarts, verdicts."""
    import msgspec

    from workloads.harness.plan import note
    from workloads.harness.timing import Limits
    from workloads.referee import outsiders, verdicts

    pairs, short = args.pairs or (2 if args.fast else 50), Limits(0.02, 20, 0.008, 2.0)
    if name == "spread":
        plain = msgspec.structs.replace(row, settings=msgspec.structs.replace(row.settings, switches={}))
        yield done.get(row.key) or verdicts.in_turns(plain, short, args.seed)
    elif name == "restarts":
        yield outsiders.restarts(row, *((10, 3.0) if args.fast else (100, 30.0)), args.seed)
    elif (old := done.get(verdicts.judged(row, name).key)) and old.values["pairs"] >= pairs:
        yield old
    else:
        for said in verdicts.verdicts(row, pairs, short, args.seed, name == "rigorous", run, old):
            if isinstance(said, str):
                note(args, said)
            else:
                yield said


def main(argv: list[str] | None = None) -> int:
    command = options.command_line("workloads.referee", argv)
    return options.command(parser(), argv, lambda args: _body(args, command))
