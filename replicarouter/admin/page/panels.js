// The gauges below the lanes, and the recent errors.

import { Bar } from "./charts.js";
import { $, DASH, brief, clock, count, el, lasting, mark, percent, plural, refill, retain, say, show } from "./dom.js";

const AFFINITY = {
  hit: "to its own replica", new: "first of its key", spill: "sent elsewhere by load",
  rehash: "its replica is gone", none: "without a key",
};

/** A list of labelled values; a row may have a bar that shows a share of one. */
class Gauges {
  constructor(id) {
    this.list = $(id);
    this.rows = new Map();
  }

  set(rows) {
    retain(this.rows, rows.map(([label]) => label));
    for (const [label, value, share, bad] of rows) {
      const row = this.rows.get(label) ?? this.#make(label);
      say(row.value, value);
      mark(row.node, "data-bad", Boolean(bad));
      show(row.bar.node, share != null);
      row.bar.set([Math.min(1, share ?? 0)], 1);
    }
  }

  #make(label) {
    const value = el("dd");
    const bar = new Bar(["used"]);
    const node = el("div", {}, el("dt", {}, label), value, bar.node);
    this.list.append(node);
    const row = { node, value, bar };
    this.rows.set(label, row);
    return row;
  }
}

const of = (value, limit) => (limit ? value / limit : null);

export class Panels {
  constructor() {
    this.queue = new Gauges("queue");
    this.connector = new Gauges("connector");
    this.affinity = new Gauges("affinity");
    this.process = new Gauges("process");
    this.counts = []; // [seconds, {result: count}] of the last minute
  }

  forget() { this.counts = []; }

  set(document) {
    const { ledger, router } = document;
    const models = Object.entries(document.queued);
    this.queue.set([
      ["waiting for a replica", count(ledger.queued), of(ledger.queued, router.queue_limit), ledger.queued > 0],
      ...(models.length > 1 ? models.map(([model, many]) => [`· ${model}`, count(many)]) : []),
      ["most that may wait", count(router.queue_limit)],
      ["longest wait now", document.longest_hold > 0 ? brief(document.longest_hold) : "none", of(document.longest_hold, router.queue_timeout)],
      ["given up after", router.queue_timeout ? lasting(router.queue_timeout) : DASH],
    ]);
    const { limit, busy, waiting, idle } = ledger.connector;
    this.connector.set([
      ["connections in use", limit ? `${count(busy)} of ${count(limit)}` : count(busy), of(busy, limit), limit && busy >= limit],
      ["limit", limit ? count(limit) : "none"],
      ["waiting for a slot", count(waiting), null, waiting > 0],
      ["idle, kept open", count(idle)],
    ]);
    this.#affinity(document.affinity);
    this.process.set([
      ["CPU, of one core", percent(router.cpu), router.cpu, router.cpu > 0.85],
      ["event loop lag", brief(router.lag), null, router.lag > 0.1],
      ["file descriptors", router.max_fds ? `${count(router.open_fds)} of ${count(router.max_fds)}` : count(router.open_fds), of(router.open_fds, router.max_fds), router.open_fds > 0.9 * router.max_fds],
      ["client connections", count(router.client_connections)],
      ["memory", router.memory == null ? DASH : `${count(router.memory / 2 ** 20)} MiB`],
      ["up for", lasting(document.at - router.born)],
    ]);
    showErrors(document.errors);
    showDeparted(document.departed);
  }

  #affinity(counts) {
    const now = performance.now() / 1000;
    this.counts.push([now, counts]);
    while (now - this.counts[0][0] > 60) this.counts.shift();
    const before = this.counts[0][1];
    const grown = Object.keys(AFFINITY).map((result) => [result, (counts[result] ?? 0) - (before[result] ?? 0)]);
    const all = grown.reduce((sum, [, many]) => sum + many, 0);
    const rows = grown.map(([result, many]) =>
      [`${result}: ${AFFINITY[result]}`, all ? percent(many / all) : DASH, all ? many / all : null]);
    this.affinity.set([...rows, ["requests, last minute", count(all)]]);
  }
}

/** Clients that left are told in one line: the end of a benchmark brings hundreds. */
function showDeparted({ count: many, stages, last }) {
  show($("departed"), many > 0);
  if (!many) return;
  const kinds = Object.entries(stages);
  const split = kinds.length > 1 ? ` (${kinds.map(([stage, left]) => `${count(left)} ${stage}`).join(", ")})` : "";
  const when = many === 1 ? "," : ", the last one";
  const where = last.replica ? `${last.stage}, from ${last.replica}` : last.stage;
  say($("departed"), `${plural(many, "client")} left since the router started${split}${when} ${lasting(last.age)} ago, at stage ${where}.`);
}

function showErrors(errors) {
  show($("errors-none"), errors.length === 0);
  show($("errors-table"), errors.length > 0);
  const shown = errors.map((error) => [error.request_id, error.outcome, error.seconds]);
  refill($("errors-table").tBodies[0], shown, () => errors.map((error) => {
    const cell = (label, text) => el("td", { "data-label": label }, text);
    const status = error.status ? ` (${error.status})` : "";
    return el("tr", {},
      cell("time", clock(Date.now() - 1000 * error.age)),
      el("td", { "data-label": "outcome", class: "outcome" }, error.outcome + status),
      cell("replica", error.replica ?? "none"),
      cell("endpoint", error.endpoint),
      cell("took", brief(error.seconds)),
      el("td", { "data-label": "request id" }, el("code", {}, error.request_id)));
  }));
}
