"""python -m analysis.fleet: what it prints and refuses."""

import fake_measurements as fake
from fake_fleet import nodes, reads, write

from analysis.fleet import command
from workloads.records import baselines


def test_rows_without_their_run_are_an_error(tmp_path, capsys):
    nodes(tmp_path, {}, 1)
    (file,) = tmp_path.glob("*/*.jsonl")
    _, *rows = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(rows))
    assert command.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: no line of {tmp_path} that can be read says what machine")


def test_a_slow_gpu_is_named_with_its_clock(tmp_path, capsys):
    nodes(tmp_path / "before", {}, 1)
    here = fake.with_gpus(*(f"GPU-0{i}" for i in range(4)))
    rows = [m for i in range(3) for m in reads(f"gpu:{i}")]
    write(tmp_path / "now" / "node-7", here, [*rows, *reads("gpu:3", 1 / 0.94, 1.4e9)])
    words = ["--against", str(tmp_path / "before")]
    assert command.main([str(tmp_path / "now"), *words]) == 0
    told = capsys.readouterr().out.splitlines()
    below = "6.00 % [6.00, 6.00] below its baseline in HBM read"
    assert told[0] == f"gpu-3 of node-7: {below}, clock held at 1.40 GHz (1.98 GHz otherwise)"
    assert told[1] == "3 of 4 judged devices as fast as before or as the others"
    assert command.main([str(tmp_path / "now"), *words, "--fail-on", "slower>3%"]) == 4
    assert command.main([str(tmp_path / "now"), *words, "--fail-on", "slower>7%"]) == 0


def test_bad_runs_are_one_error_line(tmp_path, capsys):
    assert command.main([str(tmp_path / "nothing")]) == 2
    write(tmp_path / "a", fake.with_gpus("GPU-1"), reads("gpu:0"), said="")
    write(tmp_path / "b", fake.with_gpus("GPU-1"), reads("gpu:0"), said="")
    assert command.main([str(tmp_path)]) == 2
    assert "hold the same GPU GPU-1: runs of one machine one after another" in capsys.readouterr().err
    write(tmp_path / "c", fake.with_gpus("GPU-1"), reads("gpu:0"))
    write(tmp_path / "c", fake.with_gpus("GPU-2", "GPU-3"), reads("gpu:0"), "peak")
    assert command.main([str(tmp_path / "c")]) == 2
    assert "holds runs of several machines (nvidia-h200-x2, nvidia-h200)" in capsys.readouterr().err
    assert command.main([str(tmp_path / "a"), "--against", "nobody"]) == 2
    (baselines.FOLDER / "unreadable" / "stream.jsonl").mkdir(parents=True)
    assert command.main([str(tmp_path / "a")]) == 0
    assert command.main([str(tmp_path / "a"), "--fail-on", "slower>3%"]) == 3  # a rule that nothing is held against
