"""What an engine does next: events in, instructions out; no clock, no file, no Spark."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slipstream.core.errors import (
    BadInput,
    CannotHeal,
    DamagedLayer,
    EpochFailed,
    LayerAway,
    MissingLayer,
    StoreFull,
    StoreVanished,
    Superseded,
)
from slipstream.core.settings import Exposure
from slipstream.epoch.job import JobTroubled
from slipstream.epoch.machine import (
    Announce,
    Beat,
    Compute,
    Discard,
    Done,
    Drop,
    Event,
    Explain,
    Explained,
    Failed,
    Finished,
    Heal,
    Healed,
    Hold,
    Instruction,
    Look,
    Looked,
    Policy,
    Probe,
    Probed,
    Publish,
    Question,
    RecordCut,
    RunAsked,
    Say,
    State,
    Stop,
    StopAsked,
    TakeInput,
    Taken,
    Wait,
    cause_of,
    decide,
)
from slipstream.store.history import Base, History
from slipstream.store.records import Computed, Cut
from slipstream.trace import LayerName

SUPERSEDED = Superseded("store", 1)
FULL = StoreFull("store")
GONE = StoreVanished("store")
FAULT = RuntimeError("a view fails")
TOLD = EpochFailed(8, 7, {"v": "it fails"})
DAMAGE = JobTroubled(
    "damage",
    "The layer traces/v/1-view/000001-0000000003-0000000003-00000000-80000000.log.arrow is damaged: a part.",
)
NO_SPACE = JobTroubled("hindered", "[Errno 28] No space left on device: 'x'")


def cut(epoch: int, what: str = "new") -> Cut:
    return Cut(epoch, float(epoch), {"t": what})


def record(epoch: int) -> Computed:
    return Computed(epoch, float(epoch), 0.1, 1)


def history(frontier: int, *pending: Cut, dropped: Sequence[int] = ()) -> History:
    return History(base=Base(epoch=frontier), cuts=pending, dropped=frozenset(dropped))


def begun(frontier: int = 7, *pending: Cut, policy: Policy | None = None, **more: bool | int) -> State:
    return State.begin(history(frontier, *pending), policy or Policy(), **more)  # type: ignore[arg-type]


def told(state: State, *events: Event) -> tuple[State, list[Instruction]]:
    """The state after some events, and all that was instructed; the machine is validated at every step."""
    done: list[Instruction] = []
    state.validate()
    for event in events:
        state, instructions = decide(state, event)
        state.validate()
        assert not any(isinstance(each, Question) for each in instructions[:-1])
        done += instructions
    return state, done


def asked(instructions: Sequence[Instruction]) -> list[Instruction]:
    return [each for each in instructions if not isinstance(each, Beat | Say)]


def said(instructions: Sequence[Instruction]) -> list[str]:
    return [each.text for each in instructions if isinstance(each, Say)]


def then(*instructions: Instruction) -> Sequence[Instruction]:
    """Some instructions that belong together."""
    return instructions


def settling(*names: str) -> frozenset[tuple[str, str]]:
    return frozenset(("files", name) for name in names)


RUN, LOOKED, DONE = RunAsked("caught_up"), Looked(), Done()
EPOCH_8: list[Event] = [LOOKED, Taken(cut(8)), DONE, Finished(record(8)), DONE, DONE]
TIDIED: list[Event] = [Failed(FAULT), Probed(None), DONE, Explained(TOLD), DONE]
COMPUTING: list[Event] = [RUN, LOOKED, Taken(cut(8)), DONE]
"""Epoch 8 is cut and its job runs."""
LATER: list[Event] = [LOOKED, Taken(None, settling("c"))]
ASKED_8: list[Instruction] = [
    Look(),
    TakeInput(8),
    RecordCut(cut(8)),
    Compute(cut(8)),
    Publish(record(8)),
    Announce(cut(8)),
]
TABLE: dict[str, tuple[State, list[Event], list[Instruction]]] = {
    "an epoch, and no more input": (
        begun(),
        [RUN, *EPOCH_8, LOOKED, Taken(None)],
        [*ASKED_8, Look(), TakeInput(9), Stop()],
    ),
    "up to an epoch": (begun(), [RunAsked(8), *EPOCH_8], [*ASKED_8, Stop()]),
    "already there": (begun(), [RunAsked(7)], [Stop()]),
    "no input is waited for, longer each time": (
        begun(),
        [RunAsked(), LOOKED, Taken(None), DONE, LOOKED, Taken(None), DONE],
        [
            *then(Look(), TakeInput(8), Wait(0.002, "idle"), Look(), TakeInput(8), Wait(0.004, "idle")),
            Look(),
        ],
    ),
    "to catch up, what was there is waited for until it is taken or gone": (
        begun(),
        [
            RUN,
            LOOKED,
            Taken(None, settling("a", "b")),
            DONE,
            LOOKED,
            Taken(None, settling("b")),
            DONE,
            *LATER,
        ],
        [
            *then(Look(), TakeInput(8), Wait(0.002, "idle"), Look(), TakeInput(8), Wait(0.004, "idle")),
            *then(Look(), TakeInput(8), Stop()),
        ],
    ),
    "what comes later and is not finished is not waited for": (
        begun(),
        [RUN, LOOKED, Taken(None), RUN, *EPOCH_8, LOOKED, Taken(None, settling("c"))],
        [*then(Look(), TakeInput(8), Stop()), *ASKED_8, Look(), TakeInput(9), Stop()],
    ),
    "without catching up nothing is waited for in particular": (
        begun(),
        [RunAsked(8), LOOKED, Taken(None, settling("a")), DONE],
        [Look(), TakeInput(8), Wait(0.002, "idle"), Look()],
    ),
    "the first epoch needs no input where a view begins with a row": (
        begun(0, policy=Policy(begins=True)),
        [RUN, LOOKED, Taken(Cut(1, 0.0, {})), DONE],
        [Look(), TakeInput(1, even_if_none=True), RecordCut(Cut(1, 0.0, {})), Compute(Cut(1, 0.0, {}))],
    ),
    "later ones do": (
        begun(3, policy=Policy(begins=True)),
        [RUN, LOOKED, Taken(None)],
        [Look(), TakeInput(4), Stop()],
    ),
    "the first new cut after a restore takes all there is": (
        begun(catch_up=True),
        [RUN, LOOKED, Taken(cut(8)), DONE, Finished(record(8)), DONE, DONE, LOOKED],
        [
            *then(Look(), TakeInput(8, budgeted=False), *ASKED_8[2:]),
            *then(Look(), TakeInput(9)),
        ],
    ),
    "pending cuts are computed as they were, in order, before new input": (
        begun(7, cut(8, "a"), cut(9, "b"), catch_up=True),
        [RUN, LOOKED, Finished(record(8)), DONE, DONE, LOOKED, Finished(record(9)), DONE, DONE, LOOKED],
        [
            *then(Look(), Compute(cut(8, "a")), Publish(record(8)), Announce(cut(8, "a"))),
            *then(Look(), Compute(cut(9, "b")), Publish(record(9)), Announce(cut(9, "b"))),
            *then(Look(), TakeInput(10, budgeted=False)),
        ],
    ),
    "input waits while too much is unsafe": (
        begun(policy=Policy(limit=Exposure(seconds=10))),
        [RUN, Looked(Exposure(11.0, 0)), DONE, Looked(Exposure(11.0, 0)), DONE, Looked(Exposure(9.0, 0))],
        [Look(), Wait(0.02, "unsafe"), Look(), Wait(0.02, "unsafe"), Look(), TakeInput(8)],
    ),
    "a stop ends holding": (
        begun(policy=Policy(limit=Exposure(seconds=10))),
        [RUN, Looked(Exposure(11.0, 0)), StopAsked(), DONE],
        [Look(), Wait(0.02, "unsafe"), Stop()],
    ),
    "a stop lets the epoch in hand finish": (
        begun(),
        [*COMPUTING, StopAsked(), Finished(record(8)), DONE, DONE],
        [*ASKED_8, Stop()],
    ),
    "a fault is dropped, explained and discarded": (
        begun(),
        [*COMPUTING, *TIDIED],
        [*ASKED_8[:4], Probe(), Drop(8), Explain(cut(8), True, FAULT), Discard(7), Stop(TOLD)],
    ),
    "the same input is taken again by the next run, and recorded again": (
        begun(),
        [*COMPUTING, *TIDIED, RUN, LOOKED, DONE, Finished(record(8)), DONE, DONE],
        [
            *then(*ASKED_8[:4], Probe(), Drop(8), Explain(cut(8), True, FAULT), Discard(7), Stop(TOLD)),
            *then(
                Look(), RecordCut(cut(8)), Compute(cut(8), failing=True), Publish(record(8)), Announce(cut(8))
            ),
            Look(),
        ],
    ),
    "an explanation that fails gives way to the fault": (
        begun(),
        [*COMPUTING, Failed(FAULT), Probed(None), DONE, Failed(ValueError("?")), DONE],
        [*ASKED_8[:4], Probe(), Drop(8), Explain(cut(8), True, FAULT), Discard(7), Stop(FAULT)],
    ),
    "an epoch with a cut after it was computed before: it is not dropped": (
        begun(7, cut(8), cut(9)),
        [RUN, LOOKED, Failed(FAULT), Probed(None), Explained(TOLD), DONE],
        [Look(), Compute(cut(8)), Probe(), Explain(cut(8), False, FAULT), Discard(7), Stop(TOLD)],
    ),
    "nor is one that is known to have been": (
        begun(7, cut(8), computed_before=8),
        [RUN, LOOKED, Failed(FAULT), Probed(None)],
        [Look(), Compute(cut(8)), Probe(), Explain(cut(8), False, FAULT)],
    ),
    "a job that failed because the disk is full is computed again once it is not": (
        begun(),
        [*COMPUTING, Failed(NO_SPACE), Probed(FULL), DONE, Probed(FULL), DONE, Probed(None), DONE, LOOKED],
        [
            *then(*ASKED_8[:4], Probe(), Wait(0.1, "trouble"), Probe(), Wait(0.2, "trouble"), Probe()),
            *then(Discard(7), Look(), Compute(cut(8))),
        ],
    ),
    "also if the disk has room by the time it is asked": (
        begun(),
        [*COMPUTING, Failed(NO_SPACE), Probed(None), DONE, Probed(None), DONE, LOOKED],
        [
            *then(*ASKED_8[:4], Probe(), Wait(0.1, "trouble"), Probe()),
            *then(Discard(7), Look(), Compute(cut(8))),
        ],
    ),
    "any job that fails while the disk does is not at fault": (
        begun(),
        [*COMPUTING, Failed(FAULT), Probed(GONE), DONE, Probed(None), DONE],
        [*ASKED_8[:4], Probe(), Wait(0.1, "trouble"), Probe(), Discard(7), Look()],
    ),
    "what cannot be discarded now is discarded later": (
        begun(),
        [*COMPUTING, *TIDIED[:-1], Failed(FULL), DONE, Probed(None), DONE],
        [
            *then(*ASKED_8[:4], Probe(), Drop(8), Explain(cut(8), True, FAULT), Discard(7)),
            *then(Wait(0.1, "trouble"), Probe(), Discard(7), Stop(TOLD)),
        ],
    ),
    "a cut that cannot be recorded is recorded later": (
        begun(),
        [RUN, LOOKED, Taken(cut(8)), Failed(FULL), DONE, Probed(None), DONE],
        [*ASKED_8[:3], Wait(0.1, "trouble"), Probe(), RecordCut(cut(8)), Compute(cut(8))],
    ),
    "an epoch that cannot be published is published later, and not computed again": (
        begun(),
        [*COMPUTING, Finished(record(8)), Failed(FULL), DONE, Probed(GONE), DONE, Probed(None), DONE, DONE],
        [
            *then(*ASKED_8[:5], Wait(0.1, "trouble"), Probe(), Wait(0.2, "trouble"), Probe()),
            *then(Publish(record(8)), Announce(cut(8)), Look()),
        ],
    ),
    "even by a later run": (
        begun(),
        [*COMPUTING, Finished(record(8)), Failed(FULL), StopAsked(), DONE, RUN, DONE, DONE],
        [*ASKED_8[:5], Wait(0.1, "trouble"), Stop(), Publish(record(8)), Announce(cut(8)), Look()],
    ),
    "also after an interrupt": (
        begun(),
        [*COMPUTING, Finished(record(8)), RUN, DONE],
        [*ASKED_8[:5], Publish(record(8)), Announce(cut(8))],
    ),
    "an interrupted job is run again": (
        begun(),
        [*COMPUTING, RUN, LOOKED],
        [*ASKED_8[:4], Look(), Compute(cut(8))],
    ),
    "an interrupted announcement is not": (
        begun(),
        [*COMPUTING, Finished(record(8)), DONE, RUN, LOOKED],
        [*ASKED_8, Look(), TakeInput(9)],
    ),
    "a stop ends the wait for the disk": (
        begun(),
        [*COMPUTING, Failed(NO_SPACE), Probed(FULL), StopAsked(), DONE],
        [*ASKED_8[:4], Probe(), Wait(0.1, "trouble"), Stop()],
    ),
    "a damaged layer is healed and the epoch computed again": (
        begun(),
        [*COMPUTING, Failed(DAMAGE), Probed(None), DONE, Healed(("traces/v/1-view/x",)), LOOKED],
        [*ASKED_8[:4], Probe(), Discard(7), Heal(), Look(), Compute(cut(8))],
    ),
    "healing that fails with the disk is tried again": (
        begun(),
        [*COMPUTING, Failed(DAMAGE), Probed(None), DONE, Failed(FULL), DONE, Probed(None), Healed(("x",))],
        [*ASKED_8[:4], Probe(), Discard(7), Heal(), Wait(0.1, "trouble"), Probe(), Heal(), Look()],
    ),
    "a listener that fails ends the run, and the epoch stays": (
        begun(),
        [*COMPUTING, Finished(record(8)), DONE, Failed(FAULT), RUN, LOOKED],
        [*ASKED_8, Stop(FAULT), Look(), TakeInput(9)],
    ),
    "a disk that fails after an epoch is found out by the next": (
        begun(),
        [*COMPUTING, Finished(record(8)), DONE, Failed(FULL), Failed(FULL), DONE, Probed(None)],
        [*ASKED_8, Look(), Wait(0.1, "trouble"), Probe(), Look()],
    ),
    "a source that fails ends the run, with nothing to tidy up": (
        begun(),
        [RUN, LOOKED, Failed(FAULT)],
        [Look(), TakeInput(8), Stop(FAULT)],
    ),
    "what else fails in publishing ends the run, and touches nothing": (
        begun(),
        [*COMPUTING, Finished(record(8)), Failed(FAULT)],
        [*ASKED_8[:5], Stop(FAULT)],
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_is_asked_after_what(case: str) -> None:
    state, events, expected = TABLE[case]
    _, instructions = told(state, *events)
    assert asked(instructions) == expected


MAY = Policy(may_hold=frozenset({"v", "w"}))
"""An engine that may go on without these views."""
BOTH = EpochFailed(8, 7, {"v": "it fails", "x": "so does this"})
OTHER = EpochFailed(8, 7, {"w": "it fails"})
NOBODY = EpochFailed(8, 7, {"": "input that cannot be read"})
TOLD_8: list[Instruction] = [*ASKED_8[:4], Probe(), Drop(8), Explain(cut(8), True, FAULT), Discard(7)]
AGAIN_8: list[Instruction] = [Look(), RecordCut(cut(8)), Compute(cut(8), failing=True)]
HOLDING: dict[str, tuple[State, list[Event], list[Instruction]]] = {
    "the epoch is computed without views that may be held": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED, DONE, LOOKED, DONE, Finished(record(8)), DONE, DONE],
        [*TOLD_8, Hold(8, TOLD), *AGAIN_8, Publish(record(8)), Announce(cut(8)), Look()],
    ),
    "an epoch that was computed before is not dropped, and is computed without them all the same": (
        begun(7, cut(8), cut(9), policy=MAY),
        [RUN, LOOKED, Failed(FAULT), Probed(None), Explained(TOLD), DONE, DONE, LOOKED],
        [
            *then(Look(), Compute(cut(8)), Probe(), Explain(cut(8), False, FAULT), Discard(7)),
            *then(Hold(8, TOLD), Look(), Compute(cut(8))),
        ],
    ),
    "one after the other, where one fails only without the other": (
        begun(policy=MAY),
        [
            *COMPUTING,
            *TIDIED,
            DONE,
            LOOKED,
            DONE,
            Failed(FAULT),
            Probed(None),
            DONE,
            Explained(OTHER),
            DONE,
            DONE,
        ],
        [
            *then(*TOLD_8, Hold(8, TOLD), *AGAIN_8),
            *then(Probe(), Drop(8), Explain(cut(8), True, FAULT), Discard(7), Hold(8, OTHER), Look()),
        ],
    ),
    "a view that is held is not held again": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED, DONE, LOOKED, DONE, *TIDIED],
        [
            *TOLD_8,
            Hold(8, TOLD),
            *AGAIN_8,
            Probe(),
            Drop(8),
            Explain(cut(8), True, FAULT),
            Discard(7),
            Stop(TOLD),
        ],
    ),
    "another view at fault stops the run, and nothing is held": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED[:3], Explained(BOTH), DONE],
        [*TOLD_8, Stop(BOTH)],
    ),
    "so does a failure that is no view's": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED[:3], Explained(NOBODY), DONE],
        [*TOLD_8, Stop(NOBODY)],
    ),
    "and one that nobody can explain": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED[:3], Failed(ValueError("?")), DONE],
        [*TOLD_8, Stop(FAULT)],
    ),
    "views are held once the disk is well": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED, Failed(FULL), DONE, Probed(None), DONE],
        [*TOLD_8, Hold(8, TOLD), Wait(0.1, "trouble"), Probe(), Hold(8, TOLD), Look()],
    ),
    "a plan that cannot be changed stops the run, and says why": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED, Failed(ValueError("half done"))],
        [*TOLD_8, Hold(8, TOLD)],
    ),
    "what a stop finds in hand is not begun anew": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED, StopAsked(), DONE],
        [*TOLD_8, Hold(8, TOLD), Stop()],
    ),
    "an interrupt before views are held costs one more attempt": (
        begun(policy=MAY),
        [*COMPUTING, *TIDIED, RUN, LOOKED, DONE],
        [*TOLD_8, Hold(8, TOLD), *AGAIN_8],
    ),
}


@pytest.mark.parametrize("case", HOLDING)
def test_what_is_asked_where_views_may_be_held(case: str) -> None:
    state, events, expected = HOLDING[case]
    _, instructions = told(state, *events)
    done = asked(instructions)
    if case.startswith("a plan"):
        stop = done.pop()
        assert isinstance(stop, Stop)
        assert str(stop.error) == "half done"
    assert done == expected


POINTS: dict[str, list[Event]] = {
    "looking": [RUN],
    "taking input": [RUN, LOOKED],
    "recording a cut": [RUN, LOOKED, Taken(cut(8))],
    "computing": COMPUTING,
    "publishing": [*COMPUTING, Finished(record(8))],
    "announcing": [*COMPUTING, Finished(record(8)), DONE],
    "probing a failed job": [*COMPUTING, Failed(FAULT)],
    "dropping": [*COMPUTING, *TIDIED[:2]],
    "explaining": [*COMPUTING, *TIDIED[:3]],
    "discarding": [*COMPUTING, *TIDIED[:4]],
    "healing": [*COMPUTING, Failed(DAMAGE), Probed(None), DONE],
    "probing a full disk": [*COMPUTING, Failed(NO_SPACE), Probed(FULL), DONE],
}


@pytest.mark.parametrize("point", POINTS)
def test_whoever_is_superseded_stops_and_touches_nothing(point: str) -> None:
    state, _ = told(begun(), *POINTS[point])
    _, instructions = told(state, Failed(SUPERSEDED))
    assert instructions == [Stop(SUPERSEDED)]


@pytest.mark.parametrize("point", [point for point in POINTS if point not in ("announcing", "explaining")])
def test_trouble_is_waited_out_wherever_it_comes(point: str) -> None:
    state, _ = told(begun(), *POINTS[point])
    answer: list[Event] = [Probed(FULL)] if "prob" in point or point == "computing" else [Failed(FULL)]
    if point == "computing":
        answer = [Failed(FULL), *answer]
    state, instructions = told(state, *answer)
    assert isinstance(instructions[-1], Wait)
    assert state.trouble == FULL


def test_holding_and_waiting_show_that_the_engine_lives() -> None:
    state, _ = told(begun(policy=Policy(limit=Exposure(seconds=1))), RUN)
    for _ in range(100):
        state, instructions = told(state, Looked(Exposure(5.0, 0)), DONE)
        assert Beat(7) in instructions
    state, _ = told(state, Failed(FULL))
    waited = 0.0
    for _ in range(100):
        assert isinstance(state.asked, Wait | Probe)
        if isinstance(state.asked, Wait):
            assert state.asked.seconds <= Policy().beat_within
            waited += state.asked.seconds
            state, instructions = told(state, DONE)
            assert Beat(7) in instructions
        else:
            state, instructions = told(state, Probed(FULL))
            assert said(instructions) == [], "it is said once"
    assert state.backoff == Policy().longest_trouble


def test_trouble_is_said_when_it_begins_changes_and_ends() -> None:
    _, instructions = told(
        begun(), RUN, Failed(FULL), DONE, Probed(FULL), DONE, Probed(GONE), DONE, Probed(None)
    )
    assert said(instructions) == [
        str(FULL),
        str(GONE),
        f"the store can be used again. It was waited for because {GONE}",
    ]


def test_waits_for_the_disk_begin_anew_after_an_epoch() -> None:
    state, _ = told(
        begun(), *COMPUTING, Failed(NO_SPACE), Probed(FULL), DONE, Probed(FULL), DONE, Probed(None)
    )
    assert state.backoff == 0.2
    state, _ = told(state, DONE, LOOKED, Finished(record(8)), DONE)
    assert state.backoff == 0.0


def test_damage_that_nobody_can_heal_ends_the_run_and_names_the_layer() -> None:
    state, _ = told(begun(), *COMPUTING, Failed(DAMAGE), Probed(None), DONE)
    state, instructions = told(state, Healed(()), LOOKED)
    assert asked(instructions) == [Look(), Compute(cut(8))], "once more: perhaps the agent has healed it"
    _, instructions = told(state, Failed(DAMAGE), Probed(None), DONE, Healed(()))
    stop = instructions[-1]
    assert isinstance(stop, Stop)
    assert isinstance(stop.error, CannotHeal)
    assert str(stop.error) == (
        "epoch 8 cannot be computed; the app stays at epoch 7. The layer "
        "traces/v/1-view/000001-0000000003-0000000003-00000000-80000000.log.arrow is damaged: a part. No replica has a "
        "copy of it. `slipstream fsck STORE` says what else is damaged, `slipstream fsck STORE --repair` mends what it "
        "can, and `slipstream run FILE.py --rebuild VIEW` computes a view again from its input."
    )


def test_healing_that_fails_says_of_what() -> None:
    _, instructions = told(begun(), *COMPUTING, Failed(DAMAGE), Probed(None), DONE, Failed(FAULT))
    stop = instructions[-1]
    assert isinstance(stop, Stop)
    assert "It could not be replaced: a view fails" in str(stop.error)


def test_an_epoch_is_not_healed_for_ever() -> None:
    state, _ = told(begun(), *COMPUTING)
    for _ in range(Policy().heals):
        state, instructions = told(state, Failed(DAMAGE), Probed(None), DONE, Healed(("x",)), LOOKED)
        assert isinstance(instructions[-1], Compute)
    _, instructions = told(state, Failed(DAMAGE), Probed(None), DONE, Healed(("x",)))
    assert isinstance(instructions[-1], Stop)


def test_a_damaged_layer_of_the_epoch_in_hand_is_simply_written_again() -> None:
    own = DamagedLayer("traces/v/1-view", LayerName(1, 8, 8, 0, 1 << 31), "a part")
    state, _ = told(begun(), *COMPUTING)
    for _ in range(Policy().heals):
        state, instructions = told(state, Failed(own), Probed(None), DONE, Healed(()), LOOKED)
        assert instructions[-1] == Compute(cut(8))


def test_damage_found_after_an_epoch_is_healed_and_discards_nothing() -> None:
    state, _ = told(begun(), *COMPUTING, Finished(record(8)), DONE)
    _, instructions = told(state, Failed(DamagedLayer("traces/v/1-view", LayerName(1, 3, 3, 0, 8), "a part")))
    assert instructions == [Heal()]


def test_a_history_says_where_the_machine_begins() -> None:
    state = State.begin(history(7, cut(8), cut(9), dropped=[8]), Policy(), computed_before=9)
    assert (state.frontier, state.recorded, state.once, state.failing) == (7, 9, 9, True)
    state, _ = told(state, RUN, LOOKED, Finished(record(8)), DONE)
    assert not state.failing


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    state, _ = told(begun(), RUN)
    with pytest.raises(ValueError, match="does not answer"):
        decide(state, Finished(record(8)))


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (replace(begun(7, cut(8)), frontier=5), "pending cuts follow the frontier"),
        (replace(begun(), recorded=9), "cuts are recorded in order"),
        (replace(begun(), once=9), "what was computed before was cut"),
        (replace(begun(), trouble=FULL), "trouble is waited out for something"),
        (replace(begun(7, cut(8)), record=record(9)), "the next epoch is published"),
        (replace(begun(7, cut(8)), record=record(8), recorded=7), "an epoch is published after its cut"),
        (replace(begun(7, cut(8)), asked=Compute(cut(9))), "the first pending cut is computed"),
        (replace(begun(7, cut(8)), asked=Compute(cut(8)), recorded=7), "a cut is recorded before it"),
        (replace(begun(7, cut(8)), asked=Compute(cut(8)), record=record(8)), "an epoch is computed once"),
        (replace(begun(7, cut(8)), asked=Publish(record(8))), "what was computed is published"),
        (replace(begun(), asked=Discard(6)), "only what is not published is discarded"),
        (
            replace(begun(7, cut(8)), asked=Discard(7), record=record(8)),
            "what may be published is not discarded",
        ),
        (replace(begun(7, cut(8)), asked=TakeInput(8)), "pending cuts come before new input"),
        (replace(begun(7, cut(8)), asked=Hold(8, TOLD)), "only views that may be held are"),
        (replace(begun(7, cut(8), policy=MAY), asked=Hold(7, TOLD)), "an epoch that failed is held from"),
        (replace(begun(7, cut(8), policy=MAY), asked=Hold(8, NOBODY)), "some view is at fault"),
    ],
)
def test_validate_finds_each_state_that_must_not_be(broken: State, what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        broken.validate()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (SUPERSEDED, "superseded"),
        (FULL, "trouble"),
        (DamagedLayer("traces/v/1-view", LayerName(1, 1, 1, 0, 8), "a part"), "damage"),
        (MissingLayer("traces/v/1-view", 1, 2, 0, 8), "damage"),
        (DAMAGE, "damage"),
        (NO_SPACE, "hindered"),
        (OSError(errno.EROFS, "?"), "hindered"),
        (LayerAway("layer", "replica", "down"), "hindered"),
        (OSError("the disk is full"), "fault"),
        (BadInput("t", 1, []), "fault"),
        (ConnectionRefusedError("refused"), "fault"),
        (RuntimeError("\nOSError: [Errno 28] No space left on device"), "fault"),
        (RuntimeError("\nslipstream.errors.DamagedLayer: The layer x"), "fault"),
    ],
)
def test_what_kind_of_failure_an_error_is(error: Exception, cause: str) -> None:
    assert cause_of(error) == cause


RARELY = st.integers(0, 9).map(lambda chance: chance == 9)


class Engines(RuleBasedStateMachine):
    """An engine to which anything happens, against a ledger that is kept here. What a superseded engine does, and what
    its successor would find, are told apart.
    """

    @initialize(
        frontier=st.integers(0, 3),
        waiting=st.integers(0, 3),
        once=st.booleans(),
        may_hold=st.frozensets(st.sampled_from("vwx")),
    )
    def begin(self, frontier: int, waiting: int, once: bool, may_hold: frozenset[str]) -> None:
        pending = [cut(frontier + 1 + i, f"old {i}") for i in range(waiting)]
        self.cuts = {each.epoch: each for each in pending}  # as the lineage has them
        self.first = dict(self.cuts)  # as they were cut at first
        self.computed = list(range(1, frontier + 1))
        self.layers: set[int] = set()  # epochs that have layers
        self.superseded = False
        self.began = frontier
        self.held: list[str] = []  # in the order in which they were
        policy = Policy(limit=Exposure(seconds=10.0), may_hold=may_hold)
        self.state = begun(
            frontier, *pending, policy=policy, computed_before=frontier + waiting if once else 0
        )
        self.running = False
        self.count = 0

    def tell(self, event: Event) -> None:
        self.state, instructions = decide(self.state, event)
        questions = [each for each in instructions if isinstance(each, Question)]
        assert len(questions) <= 1, "never two things in hand"
        if self.superseded:
            assert questions == [], "nothing is asked of a store that is another's"
        if any(isinstance(each, Stop) for each in instructions):
            assert not questions
            self.running = False

    @precondition(lambda self: not self.running and not self.superseded)
    @rule(until=st.sampled_from([None, "caught_up", 3, 6]))
    def run(self, until: str | int | None) -> None:
        self.running = True
        self.tell(RunAsked(until))

    @precondition(lambda self: self.superseded)
    @rule()
    def run_superseded(self) -> None:
        self.superseded = False
        self.tell(RunAsked(None))
        assert isinstance(self.state.asked, Look | Publish), "which is refused before anything is done"
        self.supersede(True)

    @precondition(lambda self: self.running)
    @rule(now=RARELY)
    def stop(self, now: bool) -> None:
        if now:
            self.tell(StopAsked())

    @precondition(lambda self: self.running)
    @rule(now=RARELY)
    def interrupt(self, now: bool) -> None:
        self.running = self.running and not now

    @precondition(lambda self: self.running)
    @rule(steps=st.integers(1, 12))
    def go_on(self, steps: int) -> None:
        """Nothing happens for a while."""
        for _ in range(steps):
            if self.running:
                self.succeed(True, False)

    @precondition(lambda self: self.running)
    @rule(input_is_there=st.booleans(), held=st.booleans())
    def succeed(self, input_is_there: bool, held: bool) -> None:
        self.answer(input_is_there, held, ())

    @precondition(lambda self: self.running and isinstance(self.state.asked, Explain))
    @rule(views=st.frozensets(st.sampled_from("vwx")))
    def explain(self, views: frozenset[str]) -> None:
        """Of views that are held already none is at fault."""
        self.answer(True, False, sorted(views - set(self.held)))

    def answer(self, input_is_there: bool, held: bool, views: Sequence[str]) -> None:
        match self.state.asked:
            case Look():
                self.tell(Looked(Exposure(100.0 if held else 0.0)))
            case TakeInput(epoch=epoch):
                self.count += 1
                self.tell(Taken(cut(epoch, f"new {self.count}") if input_is_there else None))
            case Compute(cut=made):
                assert self.cuts[made.epoch] == made, "an epoch is computed as its cut is recorded"
                assert self.first.setdefault(made.epoch, made) == made, "and as it was cut at first"
                assert made.epoch == len(self.computed) + 1
                self.layers.add(made.epoch)
                self.tell(Finished(record(made.epoch)))
            case Explain():
                self.layers.add(len(self.computed) + 1)
                causes = dict.fromkeys(views, "it fails") or {"": "nobody knows"}
                self.tell(Explained(EpochFailed(len(self.computed) + 1, len(self.computed), causes)))
            case Heal():
                self.tell(Healed(("x",) if input_is_there else ()))
            case Probe():
                self.tell(Probed(FULL if held else None))
            case question:
                self.effect()
                self.tell(Done())
                assert question is not None

    def effect(self) -> None:
        """What is asked is done, to what is kept here."""
        match self.state.asked:
            case RecordCut(cut=made):
                self.cuts[made.epoch] = made
            case Publish(record=done):
                assert done.epoch in self.cuts
                assert done.epoch in self.layers
                if done.epoch not in self.computed:  # appended once, however often it is asked for
                    assert done.epoch == len(self.computed) + 1
                    self.computed.append(done.epoch)
            case Drop(epoch=epoch):
                assert epoch > self.state.once, "what was computed before is not dropped"
                self.cuts = {number: made for number, made in self.cuts.items() if number < epoch}
            case Hold(error=error):
                assert self.layers <= set(self.computed) | set(range(self.began + 1)), "nothing is in the way"
                self.held += [view for view in error.views if view not in self.held]
            case Discard(after=after):
                assert after >= len(self.computed), "what readers see is not discarded"
                self.layers = {epoch for epoch in self.layers if epoch <= after}

    @precondition(lambda self: self.running)
    @rule(error=st.sampled_from([FULL, GONE, FAULT, DAMAGE, NO_SPACE]), took_effect=st.booleans())
    def fail(self, error: Exception, took_effect: bool) -> None:
        if isinstance(self.state.asked, Wait):
            return
        if took_effect:
            self.effect()
        if isinstance(self.state.asked, Compute):
            self.layers.add(len(self.computed) + 1)
        self.tell(Failed(error))

    @precondition(lambda self: self.running and not isinstance(self.state.asked, Wait))
    @rule(now=RARELY)
    def supersede(self, now: bool) -> None:
        if not now:
            return
        self.superseded = True
        self.tell(Failed(SUPERSEDED))
        assert not self.running

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "state"):
            return
        self.state.validate()
        assert len(self.held) == len(set(self.held)), "each is held once"
        assert set(self.computed) <= self.layers | set(range(1, self.began + 1)), "readers find their layers"
        assert self.state.frontier in (len(self.computed), len(self.computed) - 1)


Engines.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_engines_against_a_ledger = Engines.TestCase
