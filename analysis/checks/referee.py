"""How far a machine's timings can be trusted, from the referee's files: clocks beside outsiders', verdicts on known truths."""

import statistics
from collections.abc import Iterable

import msgspec

from analysis import labels, noise
from analysis.stats import Estimate
from analysis.units import count, percent, seconds
from workloads.records import Loaded, Measurement

# clock -> its runs' series, least that is allowed
OUTSIDERS = {"pyperf": ("pyperf_s", 0.02), "cuda-bench": ("cuda_bench_s", 0.01)}


class ClockRatio(msgspec.Struct, frozen=True):
    """One row timed by us and by an outsider in turns: `ratio` is ours over theirs (its ends: over the turns), `theirs` their
    seconds, `own` by how much the outsider's runs differ from one another, `allowed` what a ratio may be off by."""

    name: str
    outsider: str
    form: str
    ratio: Estimate
    theirs: float
    own: float
    allowed: float
    flags: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """The least and the largest ratio of a turn."""
        return f"{self.ratio.low:.3f}..{self.ratio.high:.3f}"

    @property
    def doubts(self) -> str:
        """`off`, and the flags that the row came with."""
        return " ".join([*([] if self.within else ["off"]), *self.flags])

    @property
    def within(self) -> bool:
        return abs(self.ratio.value - 1) <= self.allowed


class Truth(msgspec.Struct, frozen=True):
    """What `compare` said of pairs that are alike (`false` alarms) and of slow-downs that were planted (`found`)."""

    name: str
    match: str
    pairs: int
    planted: float
    false: int
    found: int
    least: float


class Restarts(msgspec.Struct, frozen=True):
    """Restarted measurements within 1 % of a long one, and the wall seconds of one: ours and cuda-bench's."""

    name: str
    count: int
    ours: int
    theirs: int
    ours_s: float
    theirs_s: float


def alone(measurements: "Iterable[Measurement]") -> bool:
    """Whether these are a referee's rows and nothing else: matches with an outsider, verdicts and restarts, and rows of several
    processes, which tell what processes differ by."""
    from analysis.stats import clock_of

    measurements = list(measurements)
    own = [noise.MATCH in m.settings.switches or any(m.on(clock) for clock in OUTSIDERS) for m in measurements]
    rest = [clock_of(m) for m, is_own in zip(measurements, own, strict=True) if not is_own and m.status != "skipped"]
    return any(own) and all(s is not None and (noise.over_processes(s) or noise.in_turns(s)) for s in rest)


def clock_ratios(measurements: "Iterable[Measurement]") -> list[ClockRatio]:
    """The rows that an outsider timed too, the shortest first."""
    found = []
    for m in measurements:
        for clock, (series, least) in OUTSIDERS.items():
            ours, theirs = m.series.get("ours_s"), m.series.get(series)
            if m.on(clock) is None or not ours or not theirs or len(ours) != len(theirs):
                continue
            ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
            own = max(theirs) / min(theirs) - 1
            allowed = max(least, 2 * own if clock == "cuda-bench" else own)
            ratio, outsider = Estimate(statistics.median(ratios), ratios[0], ratios[-1]), m.notes.get("referee", clock)
            middle, form = statistics.median(theirs), m.notes.get("form", "")
            found.append(ClockRatio(_name(m), outsider, form, ratio, middle, own, allowed, m.flags))
    return sorted(found, key=lambda b: b.theirs)


def _name(m: "Measurement") -> str:
    """The row's name without its match, which the sentence or table says."""
    return labels.row(m).replace(f" {noise.MATCH}={m.settings.switches.get(noise.MATCH, '')}", "")


def truths(measurements: "Iterable[Measurement]") -> list[Truth]:
    """What the verdicts came to, row by row."""
    found = []
    for m in measurements:
        v, match = m.values, m.settings.switches.get(noise.MATCH, "")
        if match in ("verdicts", "rigorous") and v.get("pairs"):
            found.append(
                Truth(
                    _name(m),
                    match,
                    int(v["pairs"]),
                    v["planted"],
                    int(v["false"]),
                    int(v["found"]),
                    v.get("least_effect", 0.0),
                )
            )
    return found


def restarted(measurements: "Iterable[Measurement]") -> list[Restarts]:
    """The restarts, row by row."""
    rows = [
        (m, m.values)
        for m in measurements
        if m.settings.switches.get(noise.MATCH) == "restarts" and m.values.get("restarts")
    ]
    return [
        Restarts(
            _name(m),
            int(v["restarts"]),
            int(v["ours_hits"]),
            int(v["theirs_hits"]),
            v["ours_wall_s"],
            v["theirs_wall_s"],
        )
        for m, v in rows
    ]


class Differ(msgspec.Struct, frozen=True):
    """What two single processes of a row stay within in 99 of 100 pairs; `turns`: processes that take turns; `occasions`: what
    the middles of so many occasions do, which the processes were taken at."""

    name: str
    limit: float
    processes: int
    turns: bool
    occasions: int = 0

    @property
    def how(self) -> str:
        if self.occasions:
            return f"at {self.occasions} occasions"
        return "in turns" if self.turns else "one by one"


def spreads(measurements: "Iterable[Measurement]") -> list[Differ]:
    """What single processes differ by, of rows with several, the largest first; those that took turns after them, and last what
    occasions differ by."""
    from analysis.stats import clock_of

    measurements = list(measurements)
    known, found = noise.Stored(measurements), []
    for m in measurements:
        samples = clock_of(m)
        usual = m.ok and m.settings.process == "warm" and not noise.DISTURBED & {*m.flags}
        turns = usual and samples is not None and noise.in_turns(samples)
        if turns or (usual and samples and noise.over_processes(samples)):
            name = _name(m)
            differ = known.of(m, noise.TURNS if turns else noise.ALONE)
            found.append(Differ(name, differ.limit, differ.processes, turns))
            if not turns and (apart := known.of(m, noise.OCCASIONS)).processes:
                found.append(Differ(name, apart.limit, differ.processes, False, apart.processes))
    return sorted(found, key=lambda d: (bool(d.occasions), d.turns, -d.limit))


def sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """The referee's findings in words; none without its rows."""
    measurements, told = list(measurements), []
    for outsider in dict.fromkeys(b.outsider for b in clock_ratios(measurements)):
        rows = [b for b in clock_ratios(measurements) if b.outsider == outsider]
        worst = max(rows, key=lambda b: abs(b.ratio.value - 1))
        near = sum(b.within for b in rows)
        span, off = f"{seconds(rows[0].theirs)} to {seconds(rows[-1].theirs)}", percent(abs(worst.ratio.value - 1))
        told.append(
            f"Beside {outsider}, {near} of {count(len(rows), 'row')} from {span} "
            f"agree within what is allowed ({_allowed(outsider)}); the farthest is off by {off} "
            f"({worst.name}, where runs of {outsider.split()[0]} differ by {percent(worst.own)})."
        )
    for match in ("verdicts", "rigorous"):
        tried = [t for t in truths(measurements) if t.match == match]
        if tried:
            pairs, false, found = (sum(getattr(t, f) for t in tried) for f in ("pairs", "false", "found"))
            how = "fresh processes in alternating blocks" + (", five a side" if match == "rigorous" else "")
            told.append(
                f"Of {count(pairs, 'pair')} of rows that are alike ({how}), {false} were called different; a planted "
                f"slow-down of {percent(tried[0].planted)} was found in {found} of {pairs}."
            )
    every = spreads(measurements)
    kinds = (
        ("one by one", "Two single processes of a row", "smaller differences between two runs are not claimed"),
        (
            "in turns",
            "Of processes that take turns, two",
            "the differences between processes by themselves are mostly the host's",
        ),
        (
            "at ",
            "Of a row's processes, the middles of two occasions",
            "smaller differences between two runs of several processes are not claimed",
        ),
    )
    for how, who, why in kinds:
        if known := [d for d in every if d.how.startswith(how)]:
            share = f"{100 * noise.PAIRS:.0f} of 100 pairs"
            told.append(
                f"{who} stay within {percent(known[0].limit)} in {share} ({known[0].name}), half of the rows within "
                f"{percent(known[len(known) // 2].limit)}: {why}."
            )
    for r in restarted(measurements):
        told.append(
            f"Restarted, {r.ours} of {r.count} of our measurements of {r.name} lie within 1 % of a long one at "
            f"{seconds(r.ours_s)} each, {r.theirs} of cuda-bench's at {seconds(r.theirs_s)}."
        )
    return told


def _allowed(outsider: str) -> str:
    name = outsider.split()[0]
    least, times = percent(OUTSIDERS[name][1]), "twice " if name == "cuda-bench" else ""
    return f"{least}, or {times}what its own runs differ by"


def lines(loaded: "Loaded") -> list[str]:
    """The referee's rows as text for a terminal, then the sentences."""
    told = []
    rows = clock_ratios(loaded.measurements)
    if rows:
        width = max(len(b.name) for b in rows)
        told.append(f"{'row':{width}}  {'form':5}  {'theirs':>8}  ours/theirs  over the turns  its own runs  allowed")
        told += [
            f"{b.name:{width}}  {b.form or '-':5}  {seconds(b.theirs):>8}  {b.ratio.value:11.4f}  {b.range}"
            f"   {percent(b.own):>10}  {percent(b.allowed):>7}  {b.doubts}".rstrip()
            for b in rows
        ]
    if found := truths(loaded.measurements):
        width = max(len(t.name) for t in found)
        told += ["", f"{'row':{width}}  pairs  called different  planted  found  least effect"]
        told += [
            f"{t.name:{width}}  {t.pairs:5}  {t.false:16}  {percent(t.planted):>7}  {t.found:5}  {percent(t.least):>12}"
            for t in found
        ]
    if known := spreads(loaded.measurements):
        width = max(len(d.name) for d in known)
        told += ["", f"{'row':{width}}  two processes within  processes"]
        told += [f"{d.name:{width}}  {percent(d.limit):>20}  {d.processes:9} {d.how}" for d in known]
    said = sentences(loaded.measurements)
    return [*told, *([""] if told and said else []), *said] or ["no match could be held"]
