"""The command that is meant by one that ended with an error: what its words may mean, the likeliest first."""
