"""From the text of a workflow file to a checked `Flow`."""

from gateway.workflow.language.reader import parse_flow, read_flow

__all__ = ["parse_flow", "read_flow"]
