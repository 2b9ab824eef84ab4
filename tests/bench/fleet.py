"""What Ray costs what is measured under it, and the smallest slowdown that analysis.fleet still calls slow."""

import argparse
import json
import math
import pathlib
import statistics
import sys
import time

import fake_fleet
import fake_measurements
from must_reach import Figure, at_most, exactly, table

from analysis import stats
from analysis.fleet import devices, judgment
from workloads import records
from workloads.fleet import cluster

FLAGS = ["--only", "peak", "--threads", "1", "--max-time", "0.3", "--min-time", "0.02", "-q"]
CLEAN = 5
TURN = 4  # Ray takes as long to start as a suite
SETTLED_S = 5.0  # asked about is a cluster that runs; the processes of one that starts keep the CPUs busy for so long
SLOWER = [1 + i / 1000 for i in range(30, 61)]
PLANTED = 1.06


def order() -> bytes:
    return json.dumps(FLAGS).encode() + b"\n"


def seconds(copied) -> dict[str, float]:
    """The median seconds of each row."""
    told = [(name, text.splitlines()) for name, text in copied]
    rows = [m for name, lines in told if name.endswith(".jsonl") for m in records.decode(lines).measurements]
    found = {m.key: stats.quick_seconds(m) for m in rows}
    if not found or None in found.values():
        raise RuntimeError(f"the suite did not measure: {told}")
    return found


def under_ray(times: int) -> list[dict[str, float]]:
    """The suite in a task that holds the only node of a cluster, which is there for as long as that takes."""
    ray = cluster.connect("auto", lambda text: None)
    try:
        (node,) = cluster.nodes(ray.nodes())
        time.sleep(SETTLED_S)
        held = {"num_cpus": int(node.cpus), "scheduling_strategy": cluster.on(node)}
        task = ray.remote(cluster.measure_node).options(num_returns="streaming", **held)
        return [seconds(ray.get(line) for line in task.remote(order(), {}, int(node.cpus))) for _ in range(times)]
    finally:
        ray.shutdown()


def directly(times: int) -> list[dict[str, float]]:
    """The same process, started by nobody's cluster."""
    return [seconds(cluster.measure_node(order(), {}, 0)) for _ in range(times)]


def pairs(until: float, file: pathlib.Path | None) -> list[float]:
    """The ratios of pairs taken side by side, those of earlier calls among them; TURN by TURN, in alternating order."""
    taken = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    cycle = 0.0
    while not taken or time.monotonic() + cycle < until:
        begin = time.monotonic()
        if len(taken) // TURN % 2:
            ours, bare = under_ray(TURN), directly(TURN)[::-1]
        else:
            bare, ours = directly(TURN), under_ray(TURN)[::-1]
        for a, b in zip(ours, bare, strict=True):
            taken.append(math.exp(statistics.mean(math.log(a[key] / b[key]) for key in b)))
        if file:
            file.write_text("".join(f"{json.dumps(ratio)}\n" for ratio in taken))
        cycle = time.monotonic() - begin
    return taken


def flagged(rows, seed: int, slower: float) -> set[str]:
    """The nodes called slow against their baselines and each other: eight of stored rows, the last `slower`."""
    before, now = fake_fleet.planted(rows, seed, slower)
    found = judgment.across(list(now))
    for device, old in zip(now, before, strict=True):
        found += judgment.against_baseline(device, old)
    return {f.device.node for f in found if f.flagged}


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--seconds", type=float, default=600.0, help="how long pairs are taken")
    flags.add_argument("--into", type=pathlib.Path, help="a file that keeps the pairs from call to call")
    args = flags.parse_args()
    taken = pairs(time.monotonic() + args.seconds, args.into)
    ratio = stats.median(taken)
    rows = fake_fleet.stored_rows()
    false = sum(len(flagged(rows, seed, 1.0)) for seed in range(CLEAN))
    found = sum(flagged(rows, seed, PLANTED) == {"node-7"} for seed in range(CLEAN))
    least = next((s for s in SLOWER if all("node-7" in flagged(rows, seed, s) for seed in range(CLEAN))), math.inf)
    share = 100 * (1 - 1 / least)
    reached = ratio.low <= 1 <= ratio.high and ratio.noise <= 0.02
    slow = f"devices called slow in {CLEAN} clean runs of 8"
    alone = f"of {CLEAN} runs with one device whose rows take 6 % longer: it alone is called slow"
    least = f"the smallest loss of rate called slow in all {CLEAN} runs"
    figures = [
        Figure("seconds a row under Ray / run directly on the node", "1 within, half-width <= 0.02", ratio, reached),
        Figure(slow, "0", exactly(false), false == 0),
        Figure(alone, f"{CLEAN}", exactly(found), found == CLEAN),
        at_most(least, 6, share, "%"),
    ]
    quantities = {devices.quantity(m, fake_measurements.GPU_MACHINE) for m in rows}
    notes = [
        f"Ray: {len(taken)} pairs of the suite's `peak` rows on one thread, {TURN} under a Ray that has settled, {TURN} without, "
        "in alternating order; of each pair the geometric mean over its rows.",
        "",
        f"Slow devices: eight GPUs made of {len(rows)} stored rows of an H200 ({len(quantities)} quantities), their samples "
        "drawn anew and each row moved by 0.5 % (one standard deviation) as between processes, each against a baseline made "
        "in the same way and against the others; the eighth has all its rows scaled. Not on a GPU.",
    ]
    return table("fleet", "A fleet on Ray", figures, notes)


if __name__ == "__main__":
    sys.exit(main())
