// Bars and sparklines. Sizes are set on the style object, which a strict policy allows.

import { el, mark } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 28;

/** A stacked bar: `parts` are class names, in order. */
export class Bar {
  constructor(parts) {
    this.parts = parts.map((name) => el("i", { class: name }));
    this.node = el("div", { class: "bar", "aria-hidden": "true" }, ...this.parts);
  }

  /** Values in the order of the parts; `full` is the value of the whole width. */
  set(values, full) {
    values.forEach((value, index) => {
      const width = `${full > 0 ? (100 * (value ?? 0)) / full : 0}%`;
      if (this.parts[index].style.width !== width) this.parts[index].style.width = width;
    });
  }
}

/** A line of the last minute, broken where there is no value. */
export class Sparkline {
  constructor() {
    this.node = document.createElementNS(SVG, "svg");
    this.node.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.node.setAttribute("preserveAspectRatio", "none");
    this.node.setAttribute("class", "spark");
    this.node.setAttribute("aria-hidden", "true");
    this.line = document.createElementNS(SVG, "path");
    this.node.append(this.line);
  }

  /** `points` are [seconds ago, value or null], `seconds` the whole width, `top` the whole height. */
  set(points, seconds, top) {
    let path = "";
    let last = null; // seconds ago of the last value
    for (const [ago, value] of points) {
      if (value == null) continue;
      const x = (WIDTH * (1 - ago / seconds)).toFixed(1);
      const y = (HEIGHT - 2 - (HEIGHT - 4) * Math.min(1, top > 0 ? value / top : 0)).toFixed(1);
      // Single values of a quiet replica are joined; a real pause is not.
      path += last !== null && last - ago < 6 ? `L${x} ${y}` : `M${x} ${y}h.1`;
      last = ago;
    }
    mark(this.line, "d", path);
  }
}
