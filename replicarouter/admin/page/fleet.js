// A lane for each replica: what the router has there beside what its engine says, on one scale for all.

import { Bar, Sparkline } from "./charts.js";
import { $, brief, count, el, lasting, mark, percent, plural, retain, say, show } from "./dom.js";
import { order } from "./orders.js";

const SPAN = 60; // seconds of history
const MANY = 16; // replicas from which lanes are drawn small
const TAIL = 14; // characters of a name that are always shown

const STATES = ["ready", "loading", "draining", "ejected", "unhealthy"];

/** The last minute of two means, kept here: the router remembers nothing for the page. */
class History {
  constructor() { this.points = []; }

  add(at, ttft, itl) {
    this.points.push([at, ttft, itl]);
    while (this.points.length && at - this.points[0][0] > SPAN) this.points.shift();
  }

  of(index, now) { return this.points.map((point) => [now - point[0], point[index]]); }

  values(index) { return this.points.map((point) => point[index]).filter((value) => value != null); }

  top(index) { return Math.max(0, ...this.values(index)); }

  latest(index) { return this.values(index).at(-1); }
}

class Trend {
  constructor(caption, meaning) {
    this.meaning = meaning;
    this.spark = new Sparkline();
    this.value = el("b");
    this.node = el("div", { class: "trend", role: "img" }, el("span", { class: "cap" }, caption), this.spark.node, this.value);
  }

  set(history, index, now, top) {
    this.spark.set(history.of(index, now), SPAN, top);
    const latest = history.latest(index);
    say(this.value, brief(latest));
    const said = `${this.meaning}: now ${brief(latest)}, highest of the last minute ${brief(history.top(index) || null)}`;
    mark(this.node, "title", said);
    mark(this.node, "aria-label", said);
  }
}

/** A long name may be cut in its middle: its end, a port or a number, tells replicas apart. */
function title(name) {
  const tail = Math.max(0, name.length - TAIL);
  return el("h3", { title: name, "aria-label": name }, ...(tail ? [el("span", { class: "head" }, name.slice(0, tail))] : []), el("span", {}, name.slice(tail)));
}

class Lane {
  constructor(name) {
    this.history = new History();
    this.chip = el("span", { class: "chip" });
    this.why = el("span");
    this.state = el("p", { class: "why" }, this.chip, " ", this.why);
    this.notes = el("p", { class: "notes" });
    this.ours = new Bar(["connecting", "sent", "streaming"]);
    this.engine = new Bar(["running", "waiting"]);
    this.oursText = el("span", { class: "figures" });
    this.engineText = el("span", { class: "figures" });
    this.kv = new Bar(["used"]);
    this.kvText = el("b");
    this.kvNode = el("div", { class: "kv", role: "img" }, el("span", { class: "cap" }, "KV"), this.kv.node, this.kvText);
    this.ttft = new Trend("TTFT", "Mean time from the choice of this replica to its first token");
    this.itl = new Trend("ITL", "Mean time between tokens");
    this.age = el("span", { class: "age" });
    this.button = el("button", { type: "button" });
    this.button.addEventListener("click", () => order(this.row));
    this.node = el("li", { class: "lane" },
      el("div", { class: "who" }, title(name), this.state, this.notes),
      el("div", { class: "load" },
        el("div", { class: "pair" }, this.ours.node, this.oursText),
        el("div", { class: "pair" }, this.engine.node, this.engineText)),
      this.kvNode,
      this.ttft.node,
      this.itl.node,
      el("div", { class: "do" }, this.age, this.button));
  }

  /** `scale` has the values that fill a bar and a sparkline, `verdicts` what names this replica. */
  set(row, scale, verdicts, now) {
    this.row = row;
    this.#state(row, verdicts);
    this.ours.set([row.connecting, row.sent, row.streaming], scale.requests);
    const stages = ["connecting", "sent", "streaming"].filter((stage) => row[stage]);
    const split = stages.map((stage) => `${count(row[stage])} ${stage}`).join(" · ");
    say(this.oursText, `${count(row.outstanding)} here${split && `: ${split}`}`);
    const fresh = row.running != null;
    this.engine.set([row.running, row.waiting], scale.requests);
    say(this.engineText, fresh ? `engine: ${count(row.running)} running · ${count(row.waiting)} waiting` : "engine: no fresh reading");
    mark(this.engineText, "data-bad", !fresh);
    this.kv.set([row.kv_usage], 1);
    say(this.kvText, percent(row.kv_usage));
    mark(this.kvNode, "aria-label", `KV cache used to ${percent(row.kv_usage)}`);
    mark(this.kv.node, "data-full", (row.kv_usage ?? 0) > 0.9);
    this.ttft.set(this.history, 1, now, scale.ttft);
    this.itl.set(this.history, 2, now, scale.itl);
    say(this.age, row.reading_age == null ? "never read" : `read ${row.reading_age.toFixed(1)} s ago`);
    const active = row.duty === "active";
    say(this.button, active ? "Drain" : "Undrain");
    mark(this.button, "aria-label", `${active ? "Drain" : "Undrain"} ${row.name}`);
  }

  #state(row, verdicts) {
    const state = row.stalled ? "stalled" : row.state;
    const worst = verdicts.find((verdict) => verdict.side !== "note");
    say(this.chip, state);
    mark(this.chip, "data-state", state);
    say(this.why, row.why);
    mark(this.node, "data-state", state);
    mark(this.node, "data-named", worst ? worst.side : "");
    this.problem = state !== "ready" || Boolean(worst) || row.waiting > 0 || row.cooling || row.trial;
    say(this.notes, [...(worst && state === "ready" ? [worst.title] : []), ...notes(row)].join(" · "));
    show(this.notes, this.notes.textContent !== "");
  }
}

function notes(row) {
  const found = [];
  if (row.silence > 3 && row.sent + row.streaming > 0) found.push(`no byte for ${lasting(row.silence)}`);
  if (row.ejected_until > 0) found.push(`back in ${lasting(row.ejected_until)}`);
  if (row.duty === "removed") found.push("leaves with its last request");
  if (row.trial) found.push("on trial, one request at a time");
  if (row.cooling) found.push("said it is busy");
  if (row.weight !== 1) found.push(`weight ${row.weight}`);
  if (row.share < row.weight) found.push(`starts slowly, at ${percent(row.share / row.weight)}`);
  if (row.limit) found.push(`at most ${count(row.limit)}`);
  if (Math.abs(row.unexplained ?? 0) > 2 + 0.1 * row.outstanding) found.push(`${count(row.unexplained)} unexplained`);
  for (const [name, value] of Object.entries(row.labels)) found.push(`${name}=${value}`);
  return found;
}

/** All lanes, by the name of the replica. */
export class Fleet {
  constructor() {
    this.lanes = new Map();
    this.only = $("only-problems");
    this.only.addEventListener("change", () => this.#filter());
  }

  forget() { for (const lane of this.lanes.values()) lane.history = new History(); }

  set(rows, verdicts) {
    const now = performance.now() / 1000;
    this.#keep(rows);
    for (const row of rows) this.lanes.get(row.name).history.add(now, row.ttft, row.itl);
    const scale = this.#scale(rows);
    for (const row of rows) {
      this.lanes.get(row.name).set(row, scale, verdicts.filter((verdict) => verdict.replica === row.name), now);
    }
    this.#filter();
    mark($("replicas"), "data-many", rows.length > MANY);
    say($("scale"), `full width: ${plural(scale.requests, "request")}`);
    say($("replicas-states"), summary(rows));
  }

  #scale(rows) {
    const most = Math.max(1, ...rows.map((row) => Math.max(row.outstanding, (row.running ?? 0) + (row.waiting ?? 0))));
    const step = 10 ** Math.floor(Math.log10(most)) / 2;
    const histories = [...this.lanes.values()].map((lane) => lane.history);
    return {
      requests: Math.max(4, Math.ceil(most / step) * step),
      ttft: crest(histories.flatMap((history) => history.values(1))),
      itl: crest(histories.flatMap((history) => history.values(2))),
    };
  }

  /** Make lanes for newcomers, drop those of replicas that are gone, keep the order of the router. */
  #keep(rows) {
    retain(this.lanes, rows.map((row) => row.name));
    const list = $("lanes");
    rows.forEach((row, index) => {
      if (!this.lanes.has(row.name)) this.lanes.set(row.name, new Lane(row.name));
      const node = this.lanes.get(row.name).node;
      if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
    });
  }

  #filter() {
    for (const lane of this.lanes.values()) show(lane.node, !this.only.checked || lane.problem);
  }
}

/** What fills the height of the sparklines: a few odd seconds must not flatten all the others. */
function crest(values) {
  values.sort((a, b) => a - b);
  return 1.3 * (values[Math.floor(0.9 * (values.length - 1))] ?? 0);
}

function summary(rows) {
  const counts = STATES.map((state) => [state, rows.filter((row) => row.state === state).length]);
  return counts.filter(([, many]) => many).map(([state, many]) => `${count(many)} ${state}`).join(", ") || "none";
}
