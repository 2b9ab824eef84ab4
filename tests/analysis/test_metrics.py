"""METRICS: what is stored and what is derived, their units, and rows with numbers that it does not have."""

import ast

import house
import msgspec
import pytest
from fake_measurements import gpu_run

from analysis import units
from analysis.metrics import COLUMNS, COMPARED, METRICS, PHASES, VALUES
from workloads import ROOT, records
from workloads.records import regular_files

# What the end of a name says of the unit.
ENDS = {
    "_per_s": ("FLOP/s", "byte/s"),
    "_s": ("s",),
    "_bytes": ("byte",),
    "_hz": ("Hz",),
    "_w": ("W",),
    "watts": ("W",),
    "joules_per_sample": ("J",),
    "_fraction": ("1",),
}


def test_each_table_of_metrics_goes_by_key():
    for table in (VALUES, PHASES, COLUMNS, COMPARED):
        assert all(key == metric.key for key, metric in table.items())
    assert list(COMPARED)[2:8] == ["old_s", "new_s", "ratio", "low", "high", "verdict"]


def stored() -> dict[str, set[str]]:
    """values, phases_s -> the names in all rows under reports/ and of the profile that is installed."""
    names: dict[str, set[str]] = {"values": set(), "phases_s": set()}
    files = [path for path in (ROOT / "reports").rglob("*.jsonl") if "local" not in path.parts]
    files += (ROOT / "analysis/predict/profiles").glob("*.jsonl.gz")
    assert len(files) > 50
    for path in files:
        for text in regular_files.one_by_one(path):
            line = msgspec.json.decode(text)
            for place, known in names.items():
                known.update(line.get(place, {}))
    return names


def written() -> set[str]:
    """The strings in the sources that measure."""
    words = set()
    for path in house.files("workloads"):
        if path.suffix == ".py":
            for node in ast.walk(house.tree(path)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.add(node.value)
    return words


def test_every_stored_number_is_a_metric():
    on_disk, in_sources = stored(), written()
    for place, known in (("values", VALUES), ("phases_s", PHASES)):
        assert on_disk[place] and not on_disk[place] - known.keys()
        assert not known.keys() - on_disk[place] - in_sources


def test_a_metric_has_one_entry_in_its_place():
    assert len(METRICS) == len(VALUES) + len(PHASES) + len(COLUMNS) + len(COMPARED)
    assert all(metric.name and metric.help for metric in METRICS)


def test_every_metric_has_unit_and_direction():
    units_ = {metric.unit for metric in METRICS}
    assert {metric.better for metric in METRICS} == {"higher", "lower", "-"}
    assert units_ == {"0/1", "1", "FLOP", "FLOP/s", "Hz", "J", "W", "byte", "byte/s", "count", "s", "text"}
    assert all(metric.better == "lower" for metric in PHASES.values())


def test_units_of_metrics():
    assert {VALUES[key].unit for key in ("cpu_clock_hz", "gpu_clock_hz")} == {"Hz"}
    assert (VALUES["gpu_power_w"].unit, VALUES["peak_memory_bytes"].unit, VALUES["all_reduce_s"].unit) == (
        "W",
        "byte",
        "s",
    )
    assert (VALUES["parameters"].unit, VALUES["tf32"].unit, VALUES["final_loss"].unit) == ("count", "0/1", "1")
    assert (COLUMNS["flops_per_s"].unit, COLUMNS["flops_per_s"].better) == ("FLOP/s", "higher")
    assert {metric.unit for metric in PHASES.values()} == {"s"}
    for key, metric in {**VALUES, **COLUMNS, **COMPARED}.items():
        end = next((end for end in ENDS if key.endswith(end)), None)
        assert end is None or metric.unit in ENDS[end], key


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("gpu_clock_hz", 1.4e9, "1.40 GHz"),
        ("gpu_power_w", 696.857, "697 W"),
        ("joules_per_sample", 0.00031544, "0.000315 J"),
        ("throttled_s", 0.0125, "12.5 ms"),
        ("peak_memory_bytes", 3 << 30, "3.00 GiB"),
        ("pcie_width", 16.0, "16"),
    ],
)
def test_a_value_in_its_unit(key, value, text):
    assert units.metric(key, value) == text


@pytest.mark.parametrize("place", ["values", "phases_s"])
def test_a_row_with_an_unknown_number_is_refused(place, tmp_path, capsys):
    run = gpu_run(sizes=(64, 128))
    path = tmp_path / "matmul.jsonl"
    rows = [msgspec.to_builtins(m) for m in run.measurements]
    rows[0][place] = {"speed": 2.0}
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (run.runs[0], *rows)))
    loaded = records.read(path)
    assert (len(loaded.measurements), loaded.bad_lines) == (len(rows) - 1, 1)
    assert capsys.readouterr().err == f"warning: 1 line of {path} cannot be read; {len(rows) - 1} rows read\n"
    with pytest.raises(ValueError, match="speed is not in METRICS"):
        msgspec.structs.replace(run.measurements[0], **{place: {"speed": 2.0}})


def test_fewer_seconds_are_better():
    assert {metric.better for metric in METRICS if metric.unit == "s"} == {"lower"}
