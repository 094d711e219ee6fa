"""An engine whose metrics page we cannot read, or that has none: it says nothing about itself."""

from replicarouter.engines.base import EngineReading, Samples


class GenericDialect:
    """Takes any page and reads nothing from it."""

    name = "generic"

    def recognises(self, samples: Samples) -> bool:  # noqa: ARG002
        """Accept every page; it stands last in the table."""
        return True

    def read(self, samples: Samples) -> EngineReading:  # noqa: ARG002
        """Return a reading in which every value is unknown."""
        return EngineReading()
