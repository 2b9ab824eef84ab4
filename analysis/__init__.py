"""From result files to understanding. Nothing in here times anything."""

import workloads
