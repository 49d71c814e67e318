"""A learner beside a running model: it predicts, watches, mends and learns as rows come in."""
