"""Prompts that no cache has seen: random filler, secrets in it, and the little questions. No I/O."""

from random import Random

CHARACTERS_PER_TOKEN = 4.0
"""Of English prose in the vocabularies of large models, roughly; for where nothing was measured."""

_NOUNS = (
    *("river", "lantern", "harbour", "garden", "window", "letter", "bridge", "kitchen", "mountain"),
    *("orchard", "station", "blanket", "captain", "village", "machine", "painter", "winter", "copper"),
)
_ADJECTIVES = (
    *("quiet", "narrow", "early", "heavy", "golden", "distant", "simple", "broken", "patient"),
    *("curious", "empty", "wooden", "northern", "careful", "ancient", "silver", "gentle", "crowded"),
)
_VERBS = ("follows", "remembers", "carries", "watches", "repairs", "describes", "crosses", "answers")
_SECRETS = (
    *("marble", "falcon", "pepper", "velvet", "cactus", "walrus", "amber", "thistle", "magnet", "saddle"),
    *("turnip", "anchor", "meadow", "biscuit", "raven", "cobalt", "ginger", "pebble", "willow", "zephyr"),
)

NEEDLE = "The secret word is {}."
QUESTION = "One sentence of the text tells a secret word. Which word is it? Answer with that word alone."

Message = dict[str, object]


class Prompts:
    """Makes prompts out of one random source. Each begins with a mark of its own, so that no prefix cache
    knows it."""

    def __init__(self, source: Random) -> None:
        self._source = source

    def mark(self) -> str:
        """Twelve letters and digits that nobody has used before."""
        return f"{self._source.getrandbits(48):012x}"

    def secret(self) -> str:
        """A word that stands in no book, of two that do."""
        return "".join(self._source.sample(_SECRETS, 2))

    def filler(self, characters: int) -> str:
        """Sentences of about so many characters, and at least one."""
        return " ".join(self._sentences(characters))

    def haystack(self, characters: int, secret: str, depth: float) -> str:
        """Filler of about so many characters with the needle at `depth`, 0 being its beginning and 1 its
        end."""
        sentences = self._sentences(characters)
        sentences.insert(round(depth * len(sentences)), NEEDLE.format(secret))
        return " ".join(sentences)

    def parrot(self) -> list[Message]:
        """A request whose answer is as good as certain, whatever the machine rounds differently."""
        words = " ".join(self._source.sample(_NOUNS, 6))
        return user(f"Note {self.mark()}. Repeat these words exactly, and say nothing else: {words}")

    def small(self) -> list[Message]:
        """Any short question."""
        return user(f"Note {self.mark()}. Say something about a {self._source.choice(_NOUNS)}.")

    def _sentences(self, characters: int) -> list[str]:
        sentences = [f"Text {self.mark()}."]
        left = characters - len(sentences[0])
        while left > 0 or len(sentences) < 2:
            choose = self._source.choice
            one = f"The {choose(_ADJECTIVES)} {choose(_NOUNS)} {choose(_VERBS)} the"
            one += f" {choose(_ADJECTIVES)} {choose(_NOUNS)}."
            sentences.append(one)
            left -= len(one) + 1
        return sentences


def user(text: str) -> list[Message]:
    """A conversation that begins with this."""
    return [{"role": "user", "content": text}]
