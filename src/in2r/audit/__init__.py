"""Which pairs of a table are wrong: every pair judged by evidence that needs no training, verdicts, files, a report."""
