"""The tables on a terminal: for matmul a line a size with the backends side by side, else a line a row."""

from analysis import roofline
from analysis.estimate import Estimate
from workloads.results import Machine, Measurement
from workloads.show import number

_MODE_WORDS = {"resident": "GPU resident", "roundtrip": "+copies", "roundtrip-pageable": "+pageable",
               "roundtrip-pinned": "+pinned"}  # fmt: skip


def line(cells: list[tuple[str, int]]) -> str:
    """Cells (text, width) right-aligned on one line."""
    return "  ".join(text.rjust(width) for text, width in cells)


class Matmuls:
    """Prints a line when all rows of a size are there. Times are milliseconds of one call, waited for."""

    def __init__(self, machine: Machine | None = None):
        self._all: list[Measurement] = []
        self._group: list[Measurement] = []
        self._columns: list[str] | None = None
        self._machine = machine
        self._largest, self._refining = 0, False

    def shown(self, measurement: Measurement) -> None:
        if measurement.problem.op != "matmul":
            self._all.append(measurement)
            return
        if self._group and self._group[0].problem != measurement.problem:
            self._flush()
        self._all.append(measurement)
        self._group.append(measurement)

    def finish(self) -> None:
        if self._group:
            self._flush()

    def _flush(self) -> None:
        group, self._group = self._group, []
        if group[0].problem.n < self._largest and not self._refining:
            self._refining = True
            print("sizes added around the crossovers:")
        self._largest = max(self._largest, group[0].problem.n)
        if self._columns is None:
            self._columns = self._find_columns(group)
            print(line([(c, w) for c, w in zip(self._columns, self._widths(), strict=True)]))
        print(line(list(zip(self._cells(group), self._widths(), strict=True))), flush=True)

    def _find_columns(self, group: list[Measurement]) -> list[str]:
        sides = {side: list(dict.fromkeys(_column(m) for m in group if _side(m) == side)) for side in ("CPU", "GPU")}
        columns = [c for side, found in sides.items() if found
                   for c in (*(f"{name} ms" for name in found), f"{side} GFLOP/s", f"{side} % of roof")]  # fmt: skip
        return ["n", "type", *columns, "winner" if all(sides.values()) else "fastest"]

    def _widths(self) -> list[int]:
        return [max(len(c), 8) for c in self._columns]

    def _cells(self, group: list[Measurement]) -> list[str]:
        p = group[0].problem
        roofs = roofline.roofs(self._all, self._machine)
        size = str(p.n) if p.m == p.n == p.k else f"{p.m}x{p.n}x{p.k}"
        cells = {"n": size, "type": p.math, "winner": self._winner(group), "fastest": self._winner(group)}
        for m in group:
            best = fastest([r for r in group if _column(r) == _column(m)])
            cells[f"{_column(m)} ms"] = number(host(best).value * 1e3) if best else m.status
        for side in ("CPU", "GPU"):
            best = fastest([m for m in group if _side(m) == side and m.settings.mode == "resident"])
            if best:
                judged = roofline.judge(best, roofs)
                known = judged.fraction and judged.roof.note != roofline.BEST_MATMUL  # that roof still grows
                cells[f"{side} GFLOP/s"] = number(p.flops / roofline.seconds_of(best).value / 1e9)
                cells[f"{side} % of roof"] = f"{100 * judged.fraction.value:.0f}" if known else "-"
        return [cells.get(c, "-") for c in self._columns]

    def _winner(self, group: list[Measurement]) -> str:
        cpu = fastest(self._cpu_rows(group[0].problem))
        if not any(m.settings.device != "cpu" for m in group) or cpu is None:
            best = fastest(group)
            threads = f" x{best.settings.threads}" if best and best.settings.threads else ""
            return best.kernel.split("/", 1)[1] + threads if best else "-"
        wins = []
        for mode in _MODE_WORDS:
            gpu = fastest([m for m in group if m.settings.device != "cpu" and m.settings.mode == mode])
            if gpu and host(gpu).value < host(cpu).value:
                wins.append(_MODE_WORDS[mode].removeprefix("GPU "))
        modes = {m.settings.mode for m in group if m.settings.device != "cpu"}
        return "CPU" if not wins else "GPU" if len(wins) == len(modes) else "GPU " + " ".join(wins)

    def _cpu_rows(self, p) -> list[Measurement]:
        """The CPU rows of that size, in that arithmetic or (who accepts less precision, accepts more) in float32."""
        shape = (p.m, p.n, p.k, p.layout)
        return [m for m in self._all if m.settings.device == "cpu" and m.problem.op == "matmul" and m.problem.math in
                (p.math, "float32" if p.math != "float64" else p.math)
                and (m.problem.m, m.problem.n, m.problem.k, m.problem.layout) == shape]  # fmt: skip


def _side(m: Measurement) -> str:
    return "CPU" if m.settings.device == "cpu" else "GPU"


def _column(m: Measurement) -> str:
    if _side(m) == "GPU":
        return _MODE_WORDS[m.settings.mode]
    backend, variant = m.kernel.split("/")[1:]
    return backend if variant in ("operator", "blas", "parallel") else f"{backend} {variant}"


def host(m: Measurement) -> Estimate | None:
    """Host latency of a call, or None."""
    from analysis.estimate import of

    samples = m.on("host-latency")
    return of(samples) if samples and m.status == "ok" else None


def fastest(rows: list[Measurement]) -> Measurement | None:
    """The row with the lowest host latency."""
    return min((m for m in rows if host(m)), key=lambda m: host(m).value, default=None)


class Lines:
    """A line a row: what, how large, milliseconds with their interval, the rate, the roof, what is doubtful."""

    HEAD = (("kernel", 24), ("problem", 26), ("where", 12), ("ms", 9), ("+-%", 5), ("rate", 14),
            ("% roof", 6), ("notes", 5))  # fmt: skip

    def __init__(self, machine: Machine | None = None):
        self._all: list[Measurement] = []
        self._machine = machine

    def shown(self, m: Measurement) -> None:
        if not self._all:
            print(line(list(self.HEAD)))
        self._all.append(m)
        print(line(list(zip(self._cells(m), (w for _, w in self.HEAD), strict=True))), flush=True)

    def _cells(self, m: Measurement) -> list[str]:
        p, s = m.problem, m.settings
        what = {"stream": lambda: f"{p.operation} {number(p.nbytes / 2**20)} MiB {p.dtype}", "peak": lambda: p.math}
        where = s.device if s.device != "cpu" else f"{s.threads} thread{'s' * (s.threads != 1)}"
        problem = what.get(p.op, lambda: "")()
        seconds = roofline.seconds_of(m)
        if seconds is None:
            return [m.kernel, problem, where, m.status, "", "", "", m.reason]
        rate = (f"{number(p.flops / seconds.value / 1e9)} GFLOP/s" if p.op == "peak"
                else f"{number(p.bytes_moved / seconds.value / 1e9)} GB/s")  # fmt: skip
        fraction = roofline.judge(m, roofline.roofs(self._all, self._machine)).fraction
        percent = f"{100 * fraction.value:.0f}" if fraction else "-"
        return [
            m.kernel,
            problem,
            where,
            number(seconds.value * 1e3),
            number(100 * seconds.noise, 2),
            rate,
            percent,
            " ".join(m.flags),
        ]

    def finish(self) -> None:
        pass
