"""What the users ask: streamed chat requests with different prompts and answer lengths, as bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

CHAT = "/v1/chat/completions"
CHARACTERS_PER_TOKEN = 4
"""About what English prose has in byte-pair vocabularies."""

_QUESTIONS = (
    "Explain {} to a colleague who starts tomorrow.",
    "What usually goes wrong with {}, and how does one notice?",
    "Compare two ways of organising {}.",
    "Draft a friendly answer to a customer who asks about {}.",
    "List what to check before we change {}.",
)
_SUBJECTS = (
    "the night shift of a bakery",
    "a small library's lending desk",
    "the irrigation of a vegetable garden",
    "the timetable of a ferry line",
    "a repair shop for bicycles",
    "the ticket office of a theatre",
    "the archive of a town hall",
    "a weather station on a hill",
)
_DETAILS = (
    "We are five people and have done it this way for years.",
    "Half of the work falls on a single day of the week.",
    "The figures of last month are better than we had expected.",
    "There is a budget, although it is a modest one.",
    "Most of it is still written on paper.",
    "Our neighbours do the same with half of the effort.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests to `model`; lengths in tokens are drawn evenly from the two ranges, ends included.

    A prompt's length is approximate. An answer is cut at its drawn length, unless it ends before.
    """

    model: str
    prompt_tokens: tuple[int, int] = (20, 80)
    answer_tokens: tuple[int, int] = (100, 200)
    seed: int = 0

    def bodies(self, user: int) -> Iterator[dict[str, Any]]:
        """The requests of one user, without end: the same for the same seed, different for each user."""
        source = Random(f"{self.seed}/{user}")
        number = 0
        while True:
            number += 1
            yield {
                "model": self.model,
                "messages": [{"role": "user", "content": self._prompt(source, f"{user}-{number}")}],
                "max_tokens": source.randint(*self.answer_tokens),
                "stream": True,
                "stream_options": {"include_usage": True},
            }

    def _prompt(self, source: Random, case: str) -> str:
        length = source.randint(*self.prompt_tokens) * CHARACTERS_PER_TOKEN
        question = source.choice(_QUESTIONS).format(source.choice(_SUBJECTS))
        sentences = [f"Case {case}.", question]
        characters = sum(len(sentence) + 1 for sentence in sentences)
        while characters < length:
            sentences.append(source.choice(_DETAILS))
            characters += len(sentences[-1]) + 1
        return " ".join(sentences)


def http_request(body: dict[str, Any], *, host: str, path: str = CHAT) -> bytes:
    """The bytes of a POST of `body` as JSON; `host` is the `Host` field."""
    content = orjson.dumps(body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode("latin-1") + content
