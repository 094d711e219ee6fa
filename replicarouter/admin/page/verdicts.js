// The banner: one verdict in plain words, with its evidence and what to change or do; and what else was found.

import { $, brief, count, el, mark, plural, refill, say, show } from "./dom.js";

// Where in the path of a request each verdict bites.
const STAGE_OF = {
  connector_limit: "connecting",
  file_descriptors: "connecting",
  admission_limit: "queued",
  no_replica: "queued",
  queue_held: "queued",
  client_limited: "receiving",
  slow_uploads: "receiving",
  slow_connections: "connecting",
};

// Verdicts on the engines bite in the stage that most requests are in: engines send the heads of their
// answers early or late.
const OF_ENGINES = new Set([
  "engine_queueing", "kv_pressure", "held_before_scheduler", "foreign_traffic", "stalled_replica", "slow_replica",
  "load_imbalance", "spec_ceiling",
]);

const MARKS = { healthy: "✓", router: "✕", elsewhere: "▲" };

const fromLedger = (ledger) => ({
  code: ledger.queued ? "admission_limit" : "connector_limit",
  side: "router",
  title: "requests wait here although an engine has nothing waiting",
  evidence: [`${count(ledger.queued)} queued, ${count(ledger.connector.waiting)} waiting for a connector slot`],
  cure: "", setting: "", replica: "",
});

/** All verdicts, and the one that limits most (null when nothing does). */
export function judged(document) {
  const verdicts = [...document.verdicts];
  // The ledger knows at once what the verdicts say after their next look.
  if (document.ledger.proxy_limited && !verdicts.some((verdict) => verdict.side === "router")) {
    verdicts.unshift(fromLedger(document.ledger));
  }
  return { verdicts, first: verdicts.find((verdict) => verdict.side !== "note") ?? null };
}

/** The stage to highlight for a verdict, "" for none. */
export function stageOf(verdict, document) {
  if (!verdict) return "";
  if (!OF_ENGINES.has(verdict.code)) return STAGE_OF[verdict.code] ?? "";
  const named = document.replicas.find((replica) => replica.name === verdict.replica);
  const { sent, streaming } = named ?? document.ledger;
  return sent > streaming ? "sent" : "streaming";
}

// Names such as "KV cache" and "connector.limit" stay as they are.
const sentence = (text) => text.replace(/^[a-z](?=[a-z]*[ ,])/, (letter) => letter.toUpperCase());
const clause = (text) => text.replace(/^[A-Z](?=[a-z]*[ ,])/, (letter) => letter.toLowerCase());

function healthy(document) {
  const { ledger, replicas } = document;
  if (!ledger.accepted) return ["No request is in flight."];
  const running = replicas.reduce((sum, row) => sum + (row.running ?? 0), 0);
  const working = replicas.filter((row) => row.running).length;
  const pace = [];
  if (document.itl != null) pace.push(`${brief(document.itl)} between tokens`);
  if (document.ttft != null) pace.push(`first token after ${brief(document.ttft)}`);
  const speed = pace.length ? `: ${pace.join(", ")}` : "";
  return [
    `The pace is the engines’ own. ${plural(running, "request")} run on ${plural(working, "replica")}${speed}.`,
  ];
}

/** What stands between backticks is code. */
const coded = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

function cureInto(node, verdict) {
  const { cure, setting } = verdict;
  refill(node, [cure, setting], () => [
    ...(cure ? [el("b", {}, setting ? "Change: " : "Do: "), ...coded(cure)] : []),
    ...(setting && !cure.includes(setting) ? [" Setting: ", el("code", {}, setting)] : []),
  ]);
}

/** `verdicts` and `first` as `judged` has them. */
export function showVerdicts(document, { verdicts, first }) {
  const side = first ? first.side : "healthy";
  mark($("verdict"), "data-side", side);
  if (first) {
    const whose = side === "router" ? "Limited by the router" : "Not the router";
    say($("headline"), `${whose}: ${clause(first.title)}`);
  } else {
    say($("headline"), "Nothing in the router holds requests back");
  }
  window.document.title = `${MARKS[side]} ${first ? clause(first.title) : "healthy"} · replicarouter`;
  const evidence = first ? first.evidence : healthy(document);
  refill($("evidence"), evidence, () => evidence.map((text) => el("li", {}, text)));
  cureInto($("cure"), first ?? { cure: "", setting: "" });
  showOthers(verdicts.filter((verdict) => verdict !== first));
}

function showOthers(verdicts) {
  show($("others"), verdicts.length > 0);
  refill($("others-list"), verdicts, () => verdicts.map((verdict) => {
    const cure = el("p");
    cureInto(cure, verdict);
    const whose = { router: "router", elsewhere: "not the router", note: "worth knowing" }[verdict.side];
    return el("li", { "data-side": verdict.side },
      el("p", {}, el("span", { class: "side" }, whose ?? verdict.side), el("b", {}, sentence(verdict.title))),
      el("p", { class: "muted" }, verdict.evidence.join(" · ")),
      cure);
  }));
}
