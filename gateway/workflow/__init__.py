"""Workflow files: grammar, model, sandbox resolution and the node engine."""
