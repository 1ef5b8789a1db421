"""Branches: how they begin, wait for each other, fail and end."""

from collections.abc import Mapping

from gateway.workflow.model import AwaitMode, Edge, JsonValue, Loop, SourcePos
from gateway.workflow.scheduler import Branch, Departure, Scheduler
from gateway.workflow.topology import Topology

HERE = SourcePos(file="flow.bot", line=1, column=1)
BEST_EFFORT = AwaitMode.BEST_EFFORT


class Play:
    """Moves branches by hand: `ends` names a node and the targets it goes on to."""

    def __init__(self, entry: str, *edges: str, **awaits: AwaitMode) -> None:
        self.edges = {}
        for text in edges:
            source, target = text.split()
            loop = Loop(name="again", limit=9, position=HERE) if target.endswith("*") else None
            target = target.rstrip("*")
            self.edges[source, target] = Edge(
                source=source, target=target, loop=loop, position=HERE, target_position=HERE
            )
        nodes = dict.fromkeys(name for pair in self.edges for name in pair if name not in ("done", "fail"))
        self.scheduler = Scheduler(Topology(tuple(nodes), tuple(self.edges.values())), awaits, entry)
        self.running: dict[str, Branch] = {}

    def started(self) -> str:
        """What the scheduler starts now."""
        names = ""
        while (branch := self.scheduler.take_ready()) is not None:
            assert branch.node not in self.running, "one node, started twice at once"
            self.running[branch.node] = branch
            names += branch.node
        return names

    def ends(self, node: str, targets: str = "", **input_: JsonValue) -> str:
        departures = [
            Departure(edge=self.edges[node, target], input={**input_, node: target}) for target in targets.split()
        ]
        self.scheduler.leave(self.running.pop(node), departures)
        return self.started()

    def fails(self, node: str) -> str | None:
        """What is started after a failure, or None if the run has failed."""
        if not self.scheduler.fail(self.running[node]):
            return None
        del self.running[node]
        return self.started()

    def input(self, node: str) -> Mapping[str, JsonValue]:
        return self.running[node].input


def test_a_chain_runs_one_after_the_other() -> None:
    play = Play("a", "a b", "b done")
    assert play.started() == "a"
    assert play.input("a") == {}
    assert play.ends("a", "b", x=1) == "b"
    assert play.input("b") == {"x": 1, "a": "b"}
    assert not play.scheduler.ended
    assert play.ends("b", "done") == ""
    assert play.scheduler.ended


def test_a_branch_without_a_way_on_ends() -> None:
    play = Play("a", "a b", "b done")
    play.started()
    assert play.ends("a") == ""
    assert play.scheduler.ended


DIAMOND = ("r a", "r b", "a j", "b j", "j done")


def test_a_join_waits_for_every_branch_and_merges_their_inputs_in_the_order_of_the_file() -> None:
    for first, second in ("ab", "ba"):
        play = Play("r", *DIAMOND)
        play.started()
        assert play.ends("r", "a b") == "ab"
        assert play.ends(first, "j", x=first) == ""
        assert play.ends(second, "j", x=second) == "j"
        assert play.input("j") == {"x": "b", "a": "j", "b": "j"}
        assert play.ends("j", "done") == ""
        assert play.scheduler.ended


def test_a_join_does_not_wait_for_a_branch_that_went_elsewhere() -> None:
    play = Play("r", *DIAMOND, "b done")
    play.started()
    play.ends("r", "a b")
    assert play.ends("a", "j") == ""
    assert play.ends("b", "done") == "j"


def test_the_run_is_done_when_the_last_branch_is() -> None:
    play = Play("r", "r a", "r b", "a done", "b done")
    play.started()
    play.ends("r", "a b")
    play.ends("a", "done")
    assert not play.scheduler.ended
    play.ends("b", "done")
    assert play.scheduler.ended


def test_branches_that_never_meet_do_not_wait() -> None:
    play = Play("r", "r a", "r b", "a c", "c done", "b done")
    play.started()
    play.ends("r", "a b")
    assert play.ends("a", "c") == "c"


def test_an_inner_join_waits_for_its_own_branches_only() -> None:
    play = Play("r", "r s", "r c", "s a", "s b", "a i", "b i", "i j", "c j", "j done")
    play.started()
    assert play.ends("r", "s c") == "sc"
    assert play.ends("s", "a b") == "ab"
    assert play.ends("a", "i") == ""
    assert play.ends("b", "i") == "i"
    assert play.ends("i", "j") == ""
    assert play.ends("c", "j") == "j"


def test_of_two_joins_the_foremost_goes_first() -> None:
    play = Play("r", "r a", "r b", "r c", "a k", "b j", "c j", "j k", "k done")
    play.started()
    play.ends("r", "a b c")
    assert play.ends("a", "k") == ""
    assert play.ends("b", "j") == ""
    assert play.ends("c", "j") == "j"
    assert play.ends("j", "k") == "k"
    assert play.input("k") == {"a": "k", "j": "k"}


def test_a_retry_inside_a_branch_does_not_wait_for_the_others() -> None:
    play = Play("r", *DIAMOND, "a a*")
    play.started()
    play.ends("r", "a b")
    assert play.ends("a", "a") == "a"
    assert play.ends("a", "j") == ""
    assert play.ends("b", "j") == "j"


def test_a_repetition_of_the_whole_fans_out_again() -> None:
    play = Play("r", *DIAMOND, "j r*")
    play.started()
    for _ in range(3):
        play.ends("r", "a b")
        play.ends("b", "j")
        assert play.ends("a", "j") == "j"
        assert play.ends("j", "r") == "r"


def test_a_node_never_runs_twice_at_once() -> None:
    play = Play("r", *DIAMOND, "a r*")
    play.started()
    play.ends("r", "a b")
    assert play.ends("a", "r") == "r"
    assert play.ends("r", "a b") == "a"  # b still runs: the second one waits
    assert play.ends("b", "j") == "b"
    assert play.ends("a", "j") == ""
    assert play.ends("b", "j") == "j"


def test_two_edges_to_one_node_start_it_once() -> None:
    play = Play("r", "r a", "a done")
    play.started()
    twice = [Departure(edge=play.edges["r", "a"], input={"x": 1}), Departure(edge=play.edges["r", "a"], input={"y": 2})]
    play.scheduler.leave(play.running.pop("r"), twice)
    assert play.started() == "a"
    assert play.input("a") == {"x": 1, "y": 2}


def test_fail_ends_the_run_whatever_else_is_under_way() -> None:
    play = Play("r", *DIAMOND, "a fail", "b fail")
    play.started()
    play.ends("r", "a b")
    assert play.ends("a", "fail") == ""
    assert play.scheduler.ended
    assert play.scheduler.failed_at is play.edges["a", "fail"]
    play.ends("b", "fail")
    assert play.scheduler.failed_at is play.edges["a", "fail"]


def test_nothing_starts_once_fail_is_reached() -> None:
    play = Play("r", "r fail", "r a", "a done")
    play.started()
    assert play.ends("r", "fail a") == ""
    assert play.scheduler.ended


def test_a_failure_before_a_join_that_waits_for_all_fails_the_run() -> None:
    for awaits in ({}, {"j": AwaitMode.WAIT_ALL}):
        play = Play("r", *DIAMOND, **awaits)
        play.started()
        play.ends("r", "a b")
        assert play.fails("a") is None


def test_a_failure_before_a_best_effort_join_does_not() -> None:
    play = Play("r", *DIAMOND, j=BEST_EFFORT)
    play.started()
    play.ends("r", "a b")
    assert play.fails("a") == ""
    assert play.ends("b", "j") == "j"
    assert play.input("j") == {"b": "j"}


def test_a_late_failure_releases_the_best_effort_join() -> None:
    play = Play("r", *DIAMOND, j=BEST_EFFORT)
    play.started()
    play.ends("r", "a b")
    assert play.ends("a", "j") == ""
    assert play.fails("b") == "j"


def test_when_every_branch_fails_so_does_the_run() -> None:
    play = Play("r", *DIAMOND, j=BEST_EFFORT)
    play.started()
    play.ends("r", "a b")
    assert play.fails("a") == ""
    assert play.fails("b") is None


def test_a_failure_outside_of_any_fan_out_fails_the_run() -> None:
    play = Play("a", "a j", "j done", j=BEST_EFFORT)
    play.started()
    assert play.fails("a") is None


def test_the_nearest_join_decides() -> None:
    edges = ("r a", "r b", "r c", "a i", "b i", "i j", "c j", "j done")
    play = Play("r", *edges, j=BEST_EFFORT)
    play.started()
    play.ends("r", "a b c")
    assert play.fails("a") is None  # i waits for all
    assert play.fails("c") == ""  # j does not
    play = Play("r", *edges, i=BEST_EFFORT)
    play.started()
    play.ends("r", "a b c")
    assert play.fails("c") is None
    assert play.fails("a") == ""


def test_a_branch_that_meets_nobody_fails_the_run_although_others_live() -> None:
    play = Play("r", "r a", "r b", "a done", "b done", b=BEST_EFFORT)
    play.started()
    play.ends("r", "a b")
    assert play.fails("a") is None
