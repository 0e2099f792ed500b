// The map of the graph: entities along the principal axes of their vectors, and some of the facts between them.
import { el, svg } from "./dom.js";
import { entityLink } from "./address.js";
import { scale } from "./guise_plot.js";

const WIDE = [640, 380];
const roleClass = (map, role) => `role-${role === map.roles.length - 1 ? 7 : role}`;

export function entityMap(map, chosen, label, { mostLabels = 60, stretched = false } = {}) {
  const position = scale(map.points.map((p) => [p.x, -p.y]), WIDE, 14, stretched);
  const spots = map.points.map((p) => ({ p, xy: position([p.x, -p.y]), selected: p.id === chosen }));
  const self = spots.find((spot) => spot.selected);
  const node = svg("svg", { class: "plot map", role: "img", "aria-label": label });
  const draw = (zoom) => {
    const size = WIDE.map((side) => side / zoom);
    const start = [0, 1].map((i) => Math.max(0, Math.min(WIDE[i] - size[i], (self ? self.xy[i] : WIDE[i] / 2) - size[i] / 2)));
    node.setAttribute("viewBox", [...start, ...size].join(" "));
    const inside = spots.filter(({ xy }) => [0, 1].every((i) => xy[i] >= start[i] && xy[i] <= start[i] + size[i]));
    const lines = (map.links || []).map(([a, b]) => svg("path", { d: `M${spots[a].xy.join(" ")}L${spots[b].xy.join(" ")}`, class: "link" }));
    const dots = inside.map(({ p, xy, selected }) => svg("circle", {
      cx: xy[0], cy: xy[1], r: (selected ? 5.5 : 2.2) / zoom ** 0.7, class: selected ? "is-self" : roleClass(map, p.role),
      onclick: (event) => { event.preventDefault(); location.hash = entityLink(p); },
    }, svg("title", {}, p.name)));
    const taken = [], labels = [], unit = 8.5 / zoom, gap = 3.5 / zoom ** 0.7;
    for (const { p, xy, selected } of [...inside].sort((a, b) => b.selected - a.selected)) {
      const box = [xy[0] + gap * (selected ? 2 : 1), xy[1], p.name.length * unit * (selected ? 0.75 : 0.56), unit * 1.6];
      const hidden = taken.some((t) => Math.abs(t[1] - box[1]) < (t[3] + box[3]) / 2 && box[0] < t[0] + t[2] && t[0] < box[0] + box[2]);
      if (labels.length > mostLabels || p.name.length > 30 || hidden || box[0] + box[2] > start[0] + size[0]) continue;
      taken.push(box);
      const text = svg("text", { x: box[0], y: xy[1] + unit * 0.35, class: selected ? "is-self" : "" }, p.name);
      text.style.fontSize = `${selected ? unit * 1.3 : unit}px`;
      text.style.strokeWidth = `${unit / 4}px`;
      labels.push(text);
    }
    node.replaceChildren(...lines, ...dots, ...labels);
  };
  draw(chosen ? 2.56 : 1);
  return { node, draw };
}

export function mapLegend(map) {
  return el("ul", { class: "legend" }, map.roles.map((role, i) => el("li", {},
    svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("circle", { cx: 5, cy: 5, r: 5, class: roleClass(map, i) })), role)));
}
