"""What every command does with its words: parses them, runs the plan that they ask for, and prints errors. It imports the
ground."""
