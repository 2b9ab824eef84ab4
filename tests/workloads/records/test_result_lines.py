"""The lines of a result file."""

import msgspec
import pytest
from small_result_files import row, write

from workloads import records
from workloads.records import Samples
from workloads.records.result_lines import DecodedLines


def test_a_line_is_short_without_its_samples(tmp_path):
    taken = Samples("host-latency", (1.23456789012, 2.5, 3.5), 1, (2, 0, 1), "3 visits")
    long = msgspec.structs.replace(
        row(3),
        samples=(taken,),
        phases_s={"import": 0.12345678912},
        values={"parameters": 95434.0, "cpu_clock_hz": 3118068769.2874303},
        series={"loss": (2.48228812217,), "visit_at_s": (1795379040.44,)},
    )
    write(tmp_path / "rows.jsonl", long)
    (read,) = records.read(tmp_path).measurements
    assert (read.samples, read.phases_s) == ((taken,), {"import": 0.123456789})
    assert read.samples[0].block == (0, 0, 2)
    assert read.values == {"parameters": 95434.0, "cpu_clock_hz": 3118068770.0}
    assert read.series == {"loss": (2.48228812,), "visit_at_s": (1795379040.44,)}
    line = (tmp_path / "rows.jsonl").read_text().splitlines()[1]
    assert '"settings":{"threads":1},"samples":' in line and '"status"' not in line and '"layout"' not in line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"matmul/numpy/blas"', '"blas"'),
        ('"samples":', '"status":"fine","samples":'),
        ('"seconds":[0.25]', '"seconds":[0.25,0.5]'),
        ('"seconds":[0.25],"calls":1,"block_sizes":[1]', '"seconds":[],"calls":1,"block_sizes":[]'),
        ("[0.25]", "[0.0]"),
        ("[0.25]", "[-0.25]"),
        ("[0.25]", "[1e300]"),
        ("[0.25]", "[1e-300]"),
        ('"settings":{', '"settings":{"device":"gpu:x",'),
        ('"out":"float32"', '"out":"cold"'),
        ('"settings":{', '"settings":{"device":"gpu:0:0",'),
        ('"block_sizes":[1]', '"block_sizes":[2,-1]'),
        ('"calls":1', '"calls":0'),
        ('"threads":1', '"threads":-1'),
        ('"m":1', '"m":2305843009213693952'),
        ('"samples":', '"values":{"x":1e40},"samples":'),
        ('"samples":', '"phases_s":{"import":-0.01},"samples":'),
        ('"samples":', '"values":{"total_s":-0.01},"samples":'),
        ('"samples":', '"series":{"import_s":[1.0,-0.01]},"samples":'),
    ],
)
def test_a_line_nobody_measured_is_bad(old, new):
    line = msgspec.json.encode(row(1)).decode()
    assert old in line and records.decode([line.encode()]).bad_lines == 0
    assert records.decode([line.replace(old, new).encode()]) == DecodedLines(runs=[], rows={}, bad_lines=1)
