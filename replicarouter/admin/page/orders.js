// What an operator can do here: drain a replica, and give it requests again; each after a question.

import { $, plural, say, show } from "./dom.js";
import { headers, reason } from "./feed.js";

let pending = null; // the replica and the order that the dialog asks about
let fading = 0;

function tell(text, bad = false) {
  const toast = $("outcome");
  toast.dataset.bad = bad;
  say(toast, text);
  show(toast, true);
  clearTimeout(fading);
  fading = setTimeout(() => show(toast, false), bad ? 20000 : 8000);
}

/** Ask whether to drain this replica, or to end its drain. */
export function order(row) {
  const draining = row.duty === "active";
  pending = { name: row.name, action: draining ? "drain" : "undrain" };
  say($("confirm-title"), `${draining ? "Drain" : "Undrain"} ${row.name}?`);
  say($("confirm-text"), draining
    ? `It gets no new requests. ${row.outstanding ? `The ${plural(row.outstanding, "request")} it has will be finished.` : "It has no requests now."}`
    : "It gets new requests again as soon as it is ready.");
  say($("confirm-yes"), draining ? "Drain" : "Undrain");
  $("confirm").showModal();
}

async function carryOut({ name, action }) {
  try {
    const response = await fetch(`/admin/replicas/${encodeURIComponent(name)}/${action}`, {
      method: "POST", headers: headers(), cache: "no-store", credentials: "same-origin",
    });
    if (!response.ok) {
      const { message } = await reason(response);
      tell(`${name} was left as it is: ${message}`, true);
      return;
    }
    const row = await response.json();
    if (action === "undrain") tell(`${name} gets requests again.`);
    else tell(row.outstanding ? `${name} drains: ${plural(row.outstanding, "request")} to finish.` : `${name} is drained.`);
  } catch {
    tell(`${name} was left as it is: the router does not answer.`, true);
  }
}

export function listen() {
  $("confirm-no").addEventListener("click", () => $("confirm").close());
  $("confirm-yes").addEventListener("click", () => {
    $("confirm").close();
    carryOut(pending);
  });
}

/** Orders need a router that answers: without one the buttons are off, and say why. */
export function allow(allowed) {
  for (const button of document.querySelectorAll("#lanes button")) {
    if (button.disabled === allowed) {
      button.disabled = !allowed;
      button.title = allowed ? "" : "Not possible now: the router does not answer";
    }
  }
  if (!allowed && $("confirm").open) $("confirm").close();
}
