"""The answer for one training: a module a topic turns its findings into sentences and tables. It imports analysis.explain and
what all words share in analysis.text."""
