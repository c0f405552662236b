"""Looking at recorded work: traces, explanations, predictions."""
