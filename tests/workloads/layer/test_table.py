"""The table of layers that are timed by themselves."""

from analysis.table import Printed
from workloads.layer.table import LayerTable


def test_the_terminals_table_has_roofs_at_80_columns(monkeypatch):
    monkeypatch.setattr("workloads.terminal.width", lambda *_: 80)
    shown = Printed(LayerTable.HEAD, least=LayerTable.LEAST)
    assert shown.hidden == {"±%", "notes", "x", "GFLOP/s"}
    assert all(len(line) <= 80 for line in shown.head(shown._widths, 80))
