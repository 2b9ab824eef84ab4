"""Result files in a notebook: `load` gives a pandas table of what `workloads.records.read` reads, `frame` one of some rows."""

from analysis.roofline.frame import frame, load
