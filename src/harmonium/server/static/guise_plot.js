// The map of one guise.
import { svg } from "./dom.js";
import { entityLink } from "./address.js";

const SIDE = 420, NAMED = 5, LINE = 17, LONGEST = 20;

// Into a picture, in the middle: both axes alike, or each stretched to fill it.
export function scale(points, [width, height], margin, stretched = false) {
  const low = [0, 1].map((i) => Math.min(...points.map((p) => p[i]))), high = [0, 1].map((i) => Math.max(...points.map((p) => p[i])));
  const room = [width - 2 * margin, height - 2 * margin];
  const units = [0, 1].map((i) => room[i] / (high[i] - low[i] || 1e-9)), unit = Math.min(...units);
  return (p) => [0, 1].map((i) => margin + room[i] / 2 + (p[i] - (low[i] + high[i]) / 2) * (stretched ? units[i] : unit));
}

const short = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);

// A small picture: the nearest by token, each on a line of its own, at its distance from the entity; green: also true.
export function guisePicture(view) {
  const near = view.token.slice(0, NAMED), far = Math.max(...near.map((n) => n.distance), 1e-9);
  const rows = near.flatMap((n, i) => {
    const x = 12 + (n.distance / far) * 70, y = 14 + i * LINE;
    return [
      svg("line", { x1: 8, y1: y, x2: x, y2: y }), svg("circle", { cx: x, cy: y, r: 4, class: n.true ? "is-true" : "" }),
      svg("text", { x: x + 9, y: y + 4, class: n.true ? "is-true" : "" }, `${short(n.name)}${n.true ? " ✓" : ""}`),
    ];
  });
  const label = `Nearest: ${near.map((n) => n.name + (n.true ? " (also true)" : "")).join(", ") || "no other entity"}`;
  return svg("svg", { class: "guise", viewBox: `0 0 260 ${14 + NAMED * LINE}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: 8, y1: 4, x2: 8, y2: 8 + NAMED * LINE }), ...rows);
}

export class Plot {  // one map of a guise; circles stay, so that they glide when lambda changes
  constructor(label) {
    this.circles = new Map();
    this.labels = svg("g", {});
    this.dots = svg("g", {});
    this.node = svg("svg", { class: "plot", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": label }, this.dots, this.labels);
  }
  draw(points, side, nearest) {
    const position = scale(points.map((point) => point[side]), [SIDE, SIDE], 34), marks = [];
    const named = new Set(nearest.slice(0, NAMED).map((n) => n.id));
    const sorted = [...points].sort((a, b) => a.selected - b.selected || a.true - b.true);
    for (const point of sorted) {
      const [x, y] = position(point[side]);
      let circle = this.circles.get(point.id);
      if (!circle) {
        circle = svg("circle", { onclick: () => (location.hash = entityLink(point)) }, svg("title", {}, point.name));
        this.circles.set(point.id, circle);
        this.dots.append(circle);
      }
      circle.setAttribute("class", point.selected ? "is-self" : point.true ? "is-true" : "");
      circle.setAttribute("r", point.selected ? 7 : point.true ? 4.5 : 3);
      circle.setAttribute("cx", x);
      circle.setAttribute("cy", y);
      if (point.selected || named.has(point.id)) marks.push([x, y, point]);
    }
    const shown = new Set(points.map((point) => point.id));
    for (const [id, circle] of this.circles) if (!shown.has(id)) { circle.remove(); this.circles.delete(id); }
    let lowest = -LINE;
    this.labels.replaceChildren(...marks.sort((a, b) => a[1] - b[1]).map(([x, y, point]) => {
      const left = x > SIDE * 0.62;
      lowest = Math.max(y + 4, lowest + LINE);  // names do not cover each other
      return svg("text", { x: x + (left ? -9 : 9), y: lowest, "text-anchor": left ? "end" : "start",
        class: point.selected ? "is-self" : point.true ? "is-true" : "" }, short(point.name));
    }));
  }
}
