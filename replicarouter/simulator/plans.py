"""What an answer will consist of, decided before its first token: how long, which parts, why it ends."""

from dataclasses import dataclass

from replicarouter.simulator.tokens import CHARACTERS_PER_TOKEN, count_tokens, pieces, seed_of, text_of
from replicarouter.simulator.tools import ToolCall

SHORTEST_ANSWER, LONGEST_ANSWER = 256, 767
"""Tokens after which an answer ends by itself, by its seed; a request's limit may cut it before."""

SHORTEST_THOUGHT, LONGEST_THOUGHT = 64, 127


@dataclass(frozen=True, slots=True)
class Plan:
    """One choice of an answer: tokens of reasoning, then those of `lead` and of text, or a tool call instead
    of text."""

    seed: int
    reasoning: int
    text: int
    call: ToolCall | None
    finish_reason: str
    lead: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Generated tokens in all. A call's name is one, and so is the end of a completed call."""
        name = 1 if self.call else 0
        pieces = len(self.call.pieces) if self.call else 0
        end = 1 if self.finish_reason == "tool_calls" else 0
        return self.reasoning + len(self.lead) + self.text + name + pieces + end

    @property
    def said(self) -> str:
        """What is said after the reasoning."""
        return "".join(self.lead) + text_of(self.seed, self.reasoning, self.text)

    @property
    def engine_reason(self) -> str:
        """Why it ends as the engine sees it, which knows no tools."""
        return "length" if self.finish_reason == "length" else "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the request says about its answers. `budget`: tokens one of them may have at most; `word`: what
    its text is to begin with, empty for none."""

    budget: int
    endless: bool = False
    reasoning: bool = False
    call: ToolCall | None = None
    word: str = ""


def plan_answer(wish: Wish, seed: int) -> Plan:
    """Lay out the answer of `seed`; reasoning takes at most half of the budget."""
    seed = seed_of(b"plan", seed)
    budget = wish.budget
    reasoning = 0
    if wish.reasoning:
        thought = SHORTEST_THOUGHT + seed % (LONGEST_THOUGHT - SHORTEST_THOUGHT + 1)
        reasoning = min(thought, max(1, budget // 2))
    left = budget - reasoning
    if wish.call:
        return _plan_call(wish.call, seed, reasoning, left)
    lead = _lead(wish.word)[:left]
    text = SHORTEST_ANSWER + seed % (LONGEST_ANSWER - SHORTEST_ANSWER + 1)
    reason = "length" if wish.endless or text > left else "stop"
    rest = (left if reason == "length" else text) - len(lead)
    return Plan(seed, reasoning, rest, None, reason, lead)


def cut_short(plan: Plan, produced: int) -> Plan:
    """What an answer has been when its engine aborts it after so many tokens; a call is left out."""
    reasoning = min(plan.reasoning, produced)
    lead = plan.lead[: produced - reasoning]
    text = min(plan.text, produced - reasoning - len(lead))
    return Plan(plan.seed, reasoning, text, None, "abort", lead)


def _lead(word: str) -> tuple[str, ...]:
    """A word as the beginning of an answer, in whole tokens."""
    if not word:
        return ()
    text = f"{word}. "
    return pieces(text.ljust(count_tokens(len(text)) * CHARACTERS_PER_TOKEN))


def _plan_call(call: ToolCall, seed: int, reasoning: int, left: int) -> Plan:
    whole = Plan(seed, reasoning, 0, call, "tool_calls")
    if whole.tokens <= reasoning + left:
        return whole
    cut = ToolCall(call.name, call.pieces[: left - 1]) if left else None
    return Plan(seed, reasoning, 0, cut, "length")
