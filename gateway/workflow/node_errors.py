"""How the node engine fails: which node, where it stands in the file, and why."""

from gateway.errors import RunFailed
from gateway.workflow.model import SourcePos

__all__ = ["NodeError", "WorkflowFailed"]


class WorkflowFailed(RunFailed):
    """A workflow that did not reach ``done``; the message names the place in its file."""

    def __init__(self, message: str, position: SourcePos | None = None, *, cure: str | None = None) -> None:
        super().__init__(f"{position}: {message}" if position else message, cure=cure)
        self.position = position


class NodeError(WorkflowFailed):
    """A node that failed by itself: its command, its output, or a value that it or an edge behind it needs.

    ``command_exit_code`` is the command's, where one ran to its end.
    """

    def __init__(
        self,
        node: str,
        message: str,
        position: SourcePos,
        *,
        command_exit_code: int | None = None,
        cure: str | None = None,
    ) -> None:
        super().__init__(f"node {node!r}: {message}", position, cure=cure)
        self.node = node
        self.command_exit_code = command_exit_code
