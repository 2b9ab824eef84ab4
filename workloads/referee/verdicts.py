"""Rows whose truth is known: what processes of a row differ by, and what `compare` says of pairs that are alike and of planted
slow-downs."""

import contextlib
import math
import statistics
import uuid
from collections.abc import Iterator
from datetime import datetime

import msgspec

from analysis import noise
from analysis.compare import comparison
from kernels.problems import Matmul, Peak, Stream
from workloads.harness import sweep
from workloads.harness.timing import Limits, rounded
from workloads.harness.worker import Order, Worker, environment
from workloads.records import Loaded, Machine, Measurement, Row, Run, Samples, Settings

REFEREE = "referee"  # the note that names the outsider and its version
PLANTED, PLANTED_RIGOROUS = 0.05, 0.02
PROCESSES = 5
VERDICTS, RIGOROUS, TURNS = "verdicts", "rigorous", "turns"
_PAIRS_A_LINE = 5
_PATIENCE_S = 600.0
_ONE, _GPU = Settings(threads=1), Settings("gpu:0")


def spread_rows(here: Machine) -> list[Row]:
    """What people compare most, for what single processes of it differ by: products and passes of several lengths."""
    found = []
    for threads in dict.fromkeys((1, here.cores)):
        on = Settings(threads=threads)
        found += [_square(v, n, on) for v in ("numpy/blas", "numpy/operator", "numba/parallel") for n in (64, 512)]
        found += [Row("stream/numba/loop", Stream("triad", size), on) for size in (1 << 20, 1 << 27)]
        found.append(Row("peak/numba/fma", Peak("float32", threads << 28), on))
    if here.gpus:
        copied = [Settings("gpu:0", mode=mode) for mode in ("roundtrip", "roundtrip-pinned")]
        found += [_square("cupy/cublas", n, _GPU) for n in (64, 512, 2048)]
        found += [_square("cupy/cublas", 1024, on) for on in copied]
        found += [Row("stream/cupy/wide", Stream("triad", size), _GPU) for size in (1 << 23, 1 << 27)]
    return found


def _square(variant: str, n: int, on: Settings) -> Row:
    return Row(f"matmul/{variant}", Matmul(n, n, n), on)


def verdict_rows(here: Machine) -> list[Row]:
    """Rows whose processes differ by less than a verdict claims; on a GPU its own."""
    if here.gpus:
        return [
            *(_square("cupy/cublas", n, _GPU) for n in (512, 2048)),
            Row("stream/cupy/wide", Stream("triad", 1 << 26), _GPU),
        ]
    products = (("numpy/blas", 96), ("numpy/operator", 128), ("numba/reordered", 64))
    return [*(_square(*product, _ONE) for product in products), Row("peak/numba/fma", Peak("float32", 1 << 23), _ONE)]


def fresh(
    rows: list[Row], limits: Limits, seed: int, processes: int, before: dict[str, Measurement]
) -> list[Measurement]:
    """The rows measured in so many processes, a block each; those that a row has from before count and are kept. A process of
    each row in turn, so that a row's processes are spread over the whole of the time and not over some seconds of it."""
    taken: dict[str, list[Measurement]] = {row.key: [] for row in rows}
    for i in range(processes):
        for row in rows:
            parts, old = taken[row.key], before.get(row.key)
            if i >= processes - (len(set(old.samples[0].block)) if old else 0) or (parts and parts[-1].status != "ok"):
                continue
            with contextlib.closing(Worker(environment(row, {}))) as worker:
                parts.append(worker.ask(Order("measure", row, limits, seed), _PATIENCE_S))
    return [_added(taken[row.key], before.get(row.key)) for row in rows]


def _added(parts: list[Measurement], old: Measurement | None) -> Measurement:
    """One measurement of processes from before and of further ones, without those that other load disturbed; what fails now
    takes nothing from what there was. A series says when each process was taken."""
    quiet = [m for m in parts if not noise.DISTURBED & {*m.flags} and (m.status == "ok" or not old)]
    if old and not quiet:
        return old
    used = quiet if old or len(quiet) >= noise.FEWEST else parts
    made = sweep.merged(used)
    if made.status == "ok":
        made = msgspec.structs.replace(made, series={**made.series, noise.TAKEN: sum(map(when, used), ())})
    return grown(old, made) if old else made


def grown(old: Measurement, more: Measurement) -> Measurement:
    """A row over processes with those of a later run added to it."""
    samples = tuple(together([s, also]) if (also := more.on(s.clock)) else s for s in old.samples)
    flags = tuple(dict.fromkeys((*old.flags, *more.flags)))
    return msgspec.structs.replace(
        old, samples=samples, flags=flags, at=more.at, series={**old.series, noise.TAKEN: (*when(old), *when(more))}
    )


def when(m: Measurement) -> tuple[float, ...]:
    """When each process was taken, in Unix seconds; where that was not kept, all when the last one was."""
    at = datetime.fromisoformat(m.at).timestamp() if m.at else 0.0
    return m.series.get(noise.TAKEN) or (at,) * (
        len(set(m.samples[0].block)) if noise.over_processes(m.samples[0]) else 1
    )


def in_turns(row: Row, limits: Limits, seed: int, processes: int = PROCESSES) -> Measurement:
    """The row in so many processes whose blocks alternate. What all of them have in common in a round is the host's and taken
    out of its samples; what is left is what processes differ by that `sweep.alternate` compares. A block is a process."""
    done = sweep.alternate([row] * processes, limits, seed=seed)
    if done[0].status != "ok":
        return done[0]
    rounds = [_rounds(m.samples[0]) for m in done]
    common = [statistics.fmean(math.log(side[i]) for side in rounds) for i in range(min(map(len, rounds)))]
    whole = statistics.median(common)
    seconds = tuple(rounded(side[i] * math.exp(whole - c)) for side in rounds for i, c in enumerate(common))
    block = tuple(p for p in range(processes) for _ in common)
    first = done[0].samples[0]
    made = Samples(first.clock, seconds, first.calls, block, f"{processes}{noise.IN_TURNS}")
    return msgspec.structs.replace(done[0], settings=judged(row, TURNS).settings, samples=(made,))


def _rounds(samples: Samples) -> list[float]:
    """The median of each block."""
    return list(samples.medians.values())


def medians(samples: Samples) -> float:
    """The middle of the processes' middles: what a run says."""
    return statistics.median(_rounds(samples))


def together(parts: list[Samples]) -> Samples:
    """Several runs' samples as one, every process a block of its own."""
    seconds: list[float] = []
    block: list[int] = []
    for part in parts:
        base = max(block, default=-1) + 1
        ids = {b: base + i for i, b in enumerate(dict.fromkeys(part.block))}
        seconds += part.seconds
        block += [ids[b] for b in part.block]
    return Samples(parts[0].clock, tuple(seconds), parts[0].calls, tuple(block), f"{max(block) + 1}{noise.PROCESSES}")


def verdicts(
    row: Row, pairs: int, limits: Limits, seed: int, rigorous: bool, here: Run, before: Measurement | None = None
) -> Iterator[Measurement | str]:
    """Triples of the row in fresh processes and alternating blocks: two alike and one with a planted slow-down, 5 %, or for
    `rigorous` 2 % and five processes a side. `compare` judges each, which is said; values count what it said. After every few
    pairs what there is so far, the pairs of `before` included.
    """
    planted, match, every = (PLANTED_RIGOROUS, RIGOROUS, 1) if rigorous else (PLANTED, VERDICTS, _PAIRS_A_LINE)
    known = noise.stored(here.machine.key)
    values = dict(before.values) if before else {"pairs": 0.0, "planted": planted, "false": 0.0, "found": 0.0}
    series = dict(before.series) if before else {}
    result = judged(row, match)
    for i in range(int(values["pairs"]), pairs):
        done = _triple(row, limits, seed + i, planted, PROCESSES if rigorous else 1)
        if not done[0].ok:
            yield msgspec.structs.replace(done[0], settings=result.settings)
            return
        alike, slow = (
            comparison.comparison(*(Loaded((here,), (m,), 0, ()) for m in (done[0], other)), stored=known).rows[0]
            for other in done[1:]
        )
        for name, r in (("aa", alike), ("planted", slow)):
            for end, field in (("ratio", "value"), ("low", "low"), ("high", "high")):
                key = f"{name}_{end}"
                series[key] = (*series.get(key, ()), rounded(getattr(r.verdict.ratio, field)))
        values["pairs"] += 1
        values["false"] += alike.word in ("slower", "faster")
        values["found"] += slow.word == "slower"
        values["least_effect"] = alike.least.limit
        yield f"{row.kernel} {i + 1}/{pairs}: {alike.word}, planted {slow.word}"
        if (i + 1) % every == 0 or i + 1 == pairs:
            yield result.result("ok", values=dict(values), series=dict(series), notes={REFEREE: "planted truth"})


def judged(row: Row, match: str) -> Row:
    """The row whose measurement holds what came of a match: `verdicts`, `rigorous`, `turns`."""
    settings = msgspec.structs.replace(row.settings, switches={noise.MATCH: match})
    return msgspec.structs.replace(row, settings=settings)


def _triple(row: Row, limits: Limits, seed: int, planted: float, processes: int) -> list[Measurement]:
    """Two rows alike and one slowed down, side by side; with several processes each side's are its blocks."""
    handicaps = [h for h in (0.0, 0.0, planted) for _ in range(processes)]
    done = sweep.alternate([row] * len(handicaps), limits, seed=seed, handicaps=handicaps)
    if done[0].status != "ok":
        return done
    sides = [done[i : i + processes] for i in range(0, len(done), processes)]
    made, pair = [], {comparison.SIDE_BY_SIDE: uuid.uuid4().hex}  # no other triple's, whatever the seed
    for side in sides:
        samples = side[0].samples[0]
        if processes > 1:
            samples = sweep.joined([m.samples[0] for m in side], f"{processes}{noise.PROCESSES}")
        made.append(msgspec.structs.replace(side[0], samples=(samples,), notes=pair))
    return made
