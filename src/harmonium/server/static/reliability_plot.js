// Stated probability against the share that was accepted, with 95 % intervals: on the diagonal, probabilities are right.
import { count, percent, svg } from "./dom.js";

const SIZE = 270, EDGE = 42, MARGIN = 18;
const x = (share) => EDGE + share * (SIZE - EDGE - MARGIN);
const y = (share) => SIZE - EDGE - share * (SIZE - EDGE - MARGIN);

export function reliabilityPlot(bins) {
  const filled = bins.filter((bin) => bin.facts);
  const words = filled.map((bin) => `stated ${percent(bin.stated)}, accepted ${percent(bin.accepted)} of ${count(bin.facts, "fact")}`).join("; ");
  const marks = [0, 0.5, 1].flatMap((share) => [
    svg("text", { x: x(share), y: SIZE - EDGE + 15, "text-anchor": "middle" }, `${100 * share} %`),
    svg("text", { x: EDGE - 5, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]);
  return svg("svg", { class: "plot reliability", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": `Stated probability and share accepted: ${words}` },
    svg("rect", { class: "frame", x: x(0), y: y(1), width: x(1) - x(0), height: y(0) - y(1) }),
    svg("path", { class: "diagonal", d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}` }), ...marks,
    svg("text", { x: x(0.5), y: SIZE - 4, "text-anchor": "middle" }, "stated probability"),
    ...filled.map((bin) => svg("g", {},
      svg("title", {}, `${count(bin.facts, "fact")}: stated ${percent(bin.stated)}, accepted ${percent(bin.accepted)}`),
      svg("path", { class: "interval", d: `M${x(bin.stated)} ${y(bin.at_least)}V${y(bin.at_most)}` }),
      svg("circle", { cx: x(bin.stated), cy: y(bin.accepted), r: 4.5 }))));
}
