// The status page: takes each document of the feed and shows it.

import { $, clock, mark, say, show } from "./dom.js";
import { Feed } from "./feed.js";
import { Fleet } from "./fleet.js";
import { allow, listen } from "./orders.js";
import { Panels } from "./panels.js";
import { showPath } from "./path.js";
import { judged, showVerdicts } from "./verdicts.js";

const LATE = 3500; // milliseconds without a document after which what is shown is called old

const fleet = new Fleet();
const panels = new Panels();
let shownAt = 0; // when the last document came, in milliseconds of the day's clock
let born = 0;
let trouble = "";

function showDocument(data) {
  if (data.router.born !== born) {
    // Another process: its counters began at zero.
    born = data.router.born;
    fleet.forget();
    panels.forget();
  }
  shownAt = Date.now();
  trouble = "";
  show($("token"), false);
  show($("main"), true);
  const found = judged(data);
  if (!document.hidden) {
    showHeader(data.router);
    showVerdicts(data, found);
    showPath(data, found.first);
    panels.set(data);
  }
  fleet.set(data.replicas, found.verdicts);
  showFreshness();
}

function showHeader(router) {
  say($("version"), router.version);
  const state = router.draining ? "draining" : router.ready ? "ready" : "not ready";
  say($("state"), state);
  mark($("state"), "data-state", state === "not ready" ? "unhealthy" : state);
  show($("state"), true);
  const policies = new Set(Object.values(router.policies));
  say($("policy"), policies.size ? `policy ${[...policies].sort().join(", ")}` : "");
}

/** Said in words that change only when the state does, as screen readers read them out. */
function showFreshness() {
  const late = shownAt > 0 && Date.now() - shownAt > LATE;
  let feed = "live";
  let text = "Live";
  if (trouble === "locked") [feed, text] = [trouble, "Locked"];
  else if (trouble === "refused") [feed, text] = [trouble, "Refused"];
  else if (trouble === "lost" || late) {
    feed = "lost";
    text = shownAt ? `No data since ${clock(shownAt)}: the router does not answer; asking again` : "The router does not answer; asking again";
  } else if (!shownAt) [feed, text] = ["waiting", "Connecting …"];
  mark(document.body, "data-feed", feed);
  if (feed !== "live") document.title = feed === "lost" ? "… no data · replicarouter" : "replicarouter";
  say($("freshness"), text);
  allow(feed === "live");
}

function showTrouble(kind, message) {
  trouble = kind;
  const shut = kind === "locked" || kind === "refused";
  if (shut) {
    show($("main"), false);
    shownAt = 0;
    show($("token"), true);
    for (const part of $("token").querySelectorAll("label, .row, .muted")) show(part, kind === "locked");
    say($("token-text"), message || "This router asks for its admin token.");
    if (kind === "locked") $("token-field").focus();
  }
  showFreshness();
}

const feed = new Feed(showDocument, showTrouble);

$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = $("token-field");
  feed.enter(field.value);
  field.value = "";
});

listen();
setInterval(showFreshness, 500);
feed.run();
