// Small helpers. Whatever comes from the router is put into the page as text, never as markup.

export const $ = (id) => document.getElementById(id);

/** A new element with attributes and children; a child that is a string becomes text. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Set the text of a node if it has changed: screen readers and selections are left alone otherwise. */
export function say(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
}

/** Show or hide. */
export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

/** Set an attribute if it has changed. */
export function mark(node, name, value) {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Make the children of a node anew if what they show has changed. */
export function refill(node, shown, children) {
  const key = JSON.stringify(shown);
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...children());
}

/** Take out of a map what has none of these names, and its node off the page. */
export function retain(map, names) {
  const kept = new Set(names);
  for (const [name, { node }] of map) {
    if (kept.has(name)) continue;
    node.remove();
    map.delete(name);
  }
}

export const DASH = "–";
const NBSP = "\u00a0";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const exact = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A count. */
export const count = (value) => (value == null ? DASH : whole.format(value));

/** A rate: exact while small. */
export const rate = (value) => (value == null ? DASH : value < 9.95 ? tenth.format(value) : whole.format(value));

/** A share of one as per cent. */
export const percent = (value) => (value == null ? DASH : `${whole.format(value * 100)}${NBSP}%`);

/** A short time: milliseconds below a second. */
export function brief(seconds) {
  if (seconds == null) return DASH;
  if (seconds >= 9.95) return `${whole.format(seconds)}${NBSP}s`;
  if (seconds >= 0.9995) return `${exact.format(seconds)}${NBSP}s`;
  const milliseconds = seconds * 1000;
  return `${milliseconds < 9.95 ? tenth.format(milliseconds) : whole.format(milliseconds)}${NBSP}ms`;
}

/** A longer time in its two largest units. */
export function lasting(seconds) {
  if (seconds < 90) return `${whole.format(seconds)}${NBSP}s`;
  if (seconds < 5400) return `${whole.format(seconds / 60)}${NBSP}min`;
  if (seconds < 172800) return `${whole.format(seconds / 3600)}${NBSP}h`;
  return `${whole.format(seconds / 86400)}${NBSP}d`;
}

/** The time of day. */
export const clock = (milliseconds) => new Date(milliseconds).toLocaleTimeString("en-GB");

/** "1 request", "2 requests". */
export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;
