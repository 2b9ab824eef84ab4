"""A user's fit: the script that calls it, its data, and its clocks. It imports what the frameworks share and the tracing."""
