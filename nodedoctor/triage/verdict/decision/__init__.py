"""From a verdict to what a script does with the job: its kind, the decision, the nodes to leave out."""
