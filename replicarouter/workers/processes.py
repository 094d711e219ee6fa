"""What the operating system says of several processes that are one service: the sum over them."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

NAMESPACE = "replicarouter"

CPU = f"{NAMESPACE}_process_cpu_seconds"
BORN = f"{NAMESPACE}_process_start_time_seconds"


class Processes:
    """Adds up what each process uses; `pids` are those there are. CPU seconds of processes that have ended
    stay in the sum, as far as they were read."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._collectors: dict[int, ProcessCollector] = {}
        self._cpu: dict[int, float] = {}
        self._former_cpu = 0.0

    def collect(self) -> Iterator[Metric]:
        """One family for each of the facts; the start is the earliest one."""
        values: dict[str, list[float]] = {}
        texts: dict[str, tuple[str, str]] = {}
        pids = [*self._pids()]
        for pid in pids:
            for metric in self._collector(pid).collect():
                texts[metric.name] = metric.documentation, metric.type
                value = metric.samples[0].value
                if metric.name == CPU:
                    self._cpu[pid] = value
                values.setdefault(metric.name, []).append(value)
        self._forget(set(pids))
        for name, (text, kind) in texts.items():
            if name == CPU:
                total = sum(self._cpu.values()) + self._former_cpu
            else:
                total = min(values[name]) if name == BORN else sum(values[name])
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            yield make(name, text, value=total)

    def cpu(self) -> float:
        """CPU seconds that all of them have used."""
        for metric in self.collect():
            if metric.name == CPU:
                return float(metric.samples[0].value)
        return 0.0

    def _collector(self, pid: int) -> ProcessCollector:
        collector = self._collectors.get(pid)
        if collector is None:
            collector = ProcessCollector(NAMESPACE, pid=lambda: pid, registry=None)
            self._collectors[pid] = collector
        return collector

    def _forget(self, living: set[int]) -> None:
        for pid in self._collectors.keys() - living:
            del self._collectors[pid]
            self._former_cpu += self._cpu.pop(pid, 0.0)
