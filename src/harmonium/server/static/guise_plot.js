// The map of one guise.
import { svg } from "./dom.js";
import { entityLink } from "./address.js";

const SIDE = 420;

// Into a picture, in the middle: both axes alike, or each stretched to fill it.
export function scale(points, [width, height], margin, stretched = false) {
  const low = [0, 1].map((i) => Math.min(...points.map((p) => p[i]))), high = [0, 1].map((i) => Math.max(...points.map((p) => p[i])));
  const room = [width - 2 * margin, height - 2 * margin];
  const units = [0, 1].map((i) => room[i] / (high[i] - low[i] || 1e-9)), unit = Math.min(...units);
  return (p) => [0, 1].map((i) => margin + room[i] / 2 + (p[i] - (low[i] + high[i]) / 2) * (stretched ? units[i] : unit));
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
    const rank = new Map(nearest.map((n, i) => [n.id, i + 1]));
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
      if (point.selected || rank.has(point.id)) marks.push([x, y, point, rank.get(point.id)]);
    }
    const shown = new Set(points.map((point) => point.id));
    for (const [id, circle] of this.circles) if (!shown.has(id)) { circle.remove(); this.circles.delete(id); }
    this.labels.replaceChildren(...marks.map(([x, y, point, number]) => {
      const left = x > SIDE * 0.62;
      return svg("text", { x: x + (left ? -9 : 9), y: y + 4, "text-anchor": left ? "end" : "start",
        class: point.selected ? "is-self" : point.true ? "is-true" : "" }, point.selected ? point.name : String(number));
    }));
  }
}
