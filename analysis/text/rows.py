"""Rows in the words of people: what was computed, how, and how fast."""

from analysis import labels
from analysis.stats import quick_seconds
from analysis.text import peers
from analysis.text.training import switch_words
from analysis.training import break_even
from analysis.units import bytes_rate, count, flops_rate, size
from kernels.problems import Inference, Problem, Training
from workloads.records import Measurement


def problem(m: "Measurement") -> str:
    """What was computed, in a few words: with the arithmetic beside it no two problems say the same."""
    p = m.problem
    if p.op == "matmul":
        return shape(p) + (f" to {p.out}" if p.out != p.dtype else "")
    if p.op == "conv":
        return shape(p)
    if p.op == "stream":
        return f"{p.operation} {_exactly(p.nbytes)} {p.dtype}"
    if p.op == "training":
        sizes = (
            f"batch {p.batch}, {p.samples:,} {'samples' if p.samples != 1 else 'sample'}, {count(p.epochs, 'epoch')}"
        )
        return f"{p.model}, {sizes}{_inputs(p)}"
    if p.op == "inference":
        return f"{p.model}, batch {p.batch}{_inputs(p)}"
    if p.op == "transfer":
        beside = (
            f"beside {p.compute} in {count(p.chunks, 'chunk')} on {count(p.streams, 'stream')}" if p.compute else ""
        )
        return " ".join(filter(None, (p.direction, p.host_memory, _exactly(p.nbytes), beside)))
    if p.op == "launch":
        return p.call if p.count == 1 else f"{p.call} x{p.count} together"
    if p.op in ("peer", "collective", "at-once"):
        return peers.words(p)
    return f"{p.flops:,} FLOP" if p.op == "peak" else p.op


def _exactly(nbytes: int) -> str:
    """In KiB, MiB or GiB where three digits say it all."""
    number, unit = size(nbytes).split()
    whole = float(number) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}.get(unit, 1)
    return size(nbytes) if whole == nbytes else f"{nbytes:,} bytes"


def _inputs(of: "Training | Inference") -> str:
    return f", {of.dtype} inputs" if of.dtype != "float32" else ""


def shape(problem: "Problem") -> str:
    """What tells products or convolutions of one n apart; empty of others."""
    if problem.op == "matmul":
        return labels.product(problem)
    return labels.convolution(problem) if problem.op == "conv" else ""


def how(m: "Measurement") -> str:
    """How it was run, beside device and threads: how data get there, what lies in the caches; of whole models the CPU's form and
    the switches that are not their default. `-` where nothing is but as usual."""
    s, whole = m.settings, m.problem.op in ("training", "inference")
    words = [s.mode] * (s.mode != "resident" or m.problem.op != "training") + [f"{s.reuse} uses"] * (s.reuse > 1)
    words += [s.cache] * (s.cache != "warm") + ["a fresh process each"] * (s.process == "fresh")
    form = break_even.form_of(m) if whole else ""
    said = ("gpu", "jit_compile")[: 1 + (s.switches.get("jit_compile") == "on")] if form else ()
    return ", ".join([*words, *[form] * bool(form), *switch_words(s.switches, said)]) or "-"


def rate(m: "Measurement") -> str:
    """GB/s for streams, FLOP/s for what computes, on the clock that rooflines use."""
    p, time = m.problem, quick_seconds(m)
    if time is None:
        return "-"
    if p.op in ("stream", "transfer"):
        return bytes_rate(p.bytes_moved / time)
    return flops_rate(p.flops / time) if getattr(p, "flops", 0) else "-"
