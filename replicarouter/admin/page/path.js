// The path of a request: five stages, grouped by who has it, and what has come out at the end.

import { $, brief, count, mark, plural, rate, say, show } from "./dom.js";
import { stageOf } from "./verdicts.js";

const ROUTER = ["receiving", "queued", "connecting"];
const ENGINES = ["sent", "streaming"];
const FLAGS = { router: "held back here", elsewhere: "limits here" };
const SKEW = 0.05; // share of requests by which counts of different moments may differ

const sum = (rows, read) => rows.reduce((total, row) => total + (read(row) ?? 0), 0);

/** What is said at the stage that a verdict is about. */
function flagOf(verdict, stage, replicas) {
  const row = replicas.find((replica) => replica.name === verdict.replica);
  if (verdict.code === "engine_queueing") return `${count(sum(replicas, (each) => each.waiting))} wait in the engines`;
  if (row && verdict.code === "stalled_replica") return `${count(row[stage])} stuck at ${row.name}`;
  return row ? `see ${row.name}` : FLAGS[verdict.side] ?? "";
}

/** `first` is the verdict that limits most, null without one. */
export function showPath(document, first) {
  const { ledger, replicas } = document;
  const worst = stageOf(first, document);
  for (const stage of [...ROUTER, ...ENGINES]) {
    const node = $(`stage-${stage}`);
    say(node.querySelector(".count"), count(ledger[stage]));
    mark(node, "data-empty", ledger[stage] === 0);
    const flagged = stage === worst;
    mark(node, "data-limits", flagged ? first.side : "");
    const flag = node.querySelector(".flag");
    show(flag, flagged);
    say(flag, flagged ? flagOf(first, stage, replicas) : "");
  }
  const inRouter = sum(ROUTER, (stage) => ledger[stage]);
  const inEngines = sum(ENGINES, (stage) => ledger[stage]);
  say($("group-router").querySelector("[data-sum]"), count(inRouter));
  say($("group-engines").querySelector("[data-sum]"), count(inEngines));
  say($("equation"),
    `${plural(ledger.accepted, "request")} in flight = ${count(inRouter)} in the router + ${count(inEngines)} in the engines`);
  const hold = document.longest_hold;
  say($("router-aside"), hold > 0.05 ? `longest wait ${brief(hold)}` : "nobody waits");
  say($("engines-aside"), engines(ledger, replicas));
  const { ok = 0, failed = 0, client_gone: left = 0 } = document.ended_rate;
  say($("done-rate"), rate(ok));
  say($("done-aside"), `${rate(failed)}/s failed · ${rate(left)}/s clients left`);
  mark($("done-aside"), "data-bad", failed > 0);
}

function engines(ledger, replicas) {
  const fresh = replicas.filter((row) => row.running != null);
  if (!fresh.length) return "no fresh reading of any engine";
  const parts = [
    `engines report ${count(sum(fresh, (row) => row.running))} running`,
    `${count(sum(fresh, (row) => row.waiting))} waiting`,
  ];
  const beside = ledger.unexplained ?? 0;
  if (Math.abs(beside) > 2 + SKEW * ledger.accepted) parts.push(`${count(beside)} unexplained`);
  return parts.join(" · ");
}
