"""The secrets that doors ask for, and what to say when one is missing or wrong. No I/O."""

from dataclasses import dataclass

DENIED = frozenset((401, 403))
"""The statuses of an answer that wants another secret."""


@dataclass(frozen=True, slots=True)
class Secret:
    """One kind of secret: what it is called, its flag, and the variable that is read without the flag."""

    noun: str
    flag: str
    variable: str

    def trouble(self, given: str) -> str:
        """What is wrong where it was refused; `given` is what was sent, empty for nothing."""
        return f"the {self.noun} is wrong" if given else f"it wants a {self.noun}"

    def cure(self, given: str) -> str:
        """What to do then."""
        return f"see {self.flag} and {self.variable}" if given else f"give {self.flag} or set {self.variable}"


KEY = Secret("key", "--key", "OPENAI_API_KEY")
TOKEN = Secret("token", "--token", "REPLICAROUTER_ADMIN__TOKEN")
REPLICA_KEY = Secret("key", "--replica-key", "VLLM_API_KEY")
