"""Result files of made-up runs."""

import msgspec


def write(folder, *runs) -> None:
    for i, loaded in enumerate(runs):
        lines = [msgspec.json.encode(line) for line in (*loaded.runs, *loaded.measurements)]
        (folder / f"{i}.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def slowed(loaded, factor: float):
    """The same rows, each sample so many times as long."""

    def slow(s):
        return msgspec.structs.replace(s, seconds=tuple(factor * x for x in s.seconds))

    rows = [msgspec.structs.replace(m, samples=tuple(map(slow, m.samples))) for m in loaded.measurements]
    return msgspec.structs.replace(loaded, measurements=tuple(rows))


def folders(place, *loaded) -> list:
    """A run folder for each."""
    made = []
    for i, one in enumerate(loaded):
        made.append(place / f"run{i}")
        made[-1].mkdir()
        write(made[-1], one)
    return made
