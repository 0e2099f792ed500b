// The neighbourhood of an entity as a picture: a tree of relations and entities, known facts solid, predicted ones dashed.
import { el, folded, percent, svg } from "./dom.js";
import { entityLink, factLink } from "./address.js";
import { words } from "./facts.js";

const ROW = 26, COLOURS = 7, LONGEST = { wide: 26, narrow: 30 };
const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

// Known and predicted facts of one relation and side together: { relation, slot, total, facts }.
export function joinGroups(entity, known, predicted) {
  const groups = new Map();
  for (const group of known) groups.set(`${group.slot} ${group.relation.id}`, { ...group, facts: [...group.facts] });
  for (const fact of predicted) {
    const slot = fact.head.id === entity.id ? "head" : "tail", key = `${slot} ${fact.relation.id}`;
    if (!groups.has(key)) groups.set(key, { relation: fact.relation, slot, total: 0, facts: [] });
    groups.get(key).facts.push(fact);
  }
  return [...groups.values()];
}

const hidden = (group) => group.total - group.facts.filter((fact) => fact.split).length;
const rowsOf = (group) => group.facts.length + (hidden(group) > 0 ? 1 : 0);
const otherOf = (group, fact) => (group.slot === "head" ? fact.tail : fact.head);

function nodeLink(group, fact, x, y, anchor, longest) {
  const other = otherOf(group, fact), chance = fact.split ? "" : fact.probability === null ? " ?" : ` ${percent(fact.probability)}`;
  const status = fact.split ? "known" : `predicted${fact.probability === null ? "" : `, probability ${percent(fact.probability)}`}`;
  const offset = anchor === "end" ? -10 : 10;
  return svg("a", { href: entityLink(other), "aria-label": `${words(fact)}: ${status}` },
    svg("title", {}, `${words(fact)} (${status})`),
    svg("circle", { cx: x, cy: y, r: 5, class: fact.split ? "known" : "predicted" }),
    svg("text", { x: x + offset, y: y + 4.5, "text-anchor": anchor }, cut(other.name, longest), chance ? svg("tspan", { class: "chance-text" }, chance) : null));
}

function guiseLink(group, entity, x, y, anchor) {
  const arrow = group.slot === "head" ? ["", " →"] : ["← ", ""];
  return svg("a", { href: factLink(group.facts[0], group.slot), "aria-label": `Guise of ${entity.name}: ${words(group.facts[0])}` },
    svg("title", {}, `${entity.name} in this guise: ${words(group.facts[0])}`),
    svg("text", { x, y: y + 4, class: "relation", "text-anchor": anchor }, arrow[0] + cut(group.relation.name, 22) + arrow[1]));
}

const moreText = (group, x, y, anchor) =>
  svg("text", { x: x + (anchor === "end" ? -10 : 10), y: y + 4, class: "more", "text-anchor": anchor }, `and ${hidden(group)} more`);
const curve = (x0, y0, x1, y1) => `M${x0} ${y0}C${(x0 + x1) / 2} ${y0} ${(x0 + x1) / 2} ${y1} ${x1} ${y1}`;

// Two columns of groups with the entity between them.
function drawWide(entity, groups) {
  const width = 1060, middle = width / 2, sides = { left: [], right: [] }, size = { left: 0, right: 0 };
  for (const group of [...groups].sort((a, b) => rowsOf(b) - rowsOf(a))) {
    const side = size.left < size.right ? "left" : "right";
    sides[side].push(group);
    size[side] += rowsOf(group) + 0.6;
  }
  const height = ROW * (Math.max(size.left, size.right, 3) + 0.6), lines = svg("g", { class: "lines" }), links = svg("g", {});
  let colour = 0;
  for (const [side, members] of Object.entries(sides)) {
    const sign = side === "left" ? -1 : 1, anchor = side === "left" ? "end" : "start";
    let row = (height / ROW - size[side]) / 2 + 0.6;
    for (const group of members) {
      const kind = `group-${colour++ % COLOURS}`, joint = middle + sign * 240, end = middle + sign * 285;
      const centre = ROW * (row + (rowsOf(group) - 1) / 2);
      const onlyPredicted = group.facts.every((fact) => !fact.split);
      lines.append(svg("path", { d: curve(middle, height / 2, middle + sign * 90, centre) + `L${joint} ${centre}`, class: `${kind}${onlyPredicted ? " predicted" : ""}` }));
      const part = svg("g", { class: kind }, guiseLink(group, entity, middle + sign * 165, centre - 9, "middle"));
      group.facts.forEach((fact, i) => {
        const y = ROW * (row + i);
        lines.append(svg("path", { d: curve(joint, centre, end, y), class: `${kind}${fact.split ? "" : " predicted"}` }));
        part.append(nodeLink(group, fact, end, y, anchor, LONGEST.wide));
      });
      if (hidden(group) > 0) part.append(moreText(group, end, ROW * (row + group.facts.length), anchor));
      links.append(part);
      row += rowsOf(group) + 0.6;
    }
  }
  const name = cut(entity.name, 24), half = Math.max(40, name.length * 4.6 + 14);
  const self = svg("g", { class: "self" }, svg("rect", { x: middle - half, y: height / 2 - 17, width: 2 * half, height: 34, rx: 17 }),
    svg("text", { x: middle, y: height / 2 + 5, "text-anchor": "middle" }, name));
  return [width, height, lines, self, links];
}

// One column, the entity above it.
function drawNarrow(entity, groups) {
  const width = 330, lines = svg("g", { class: "lines" }), links = svg("g", {});
  const name = cut(entity.name, 30), self = svg("g", { class: "self" }, svg("rect", { x: 2, y: 4, width: Math.min(326, name.length * 9 + 28), height: 34, rx: 17 }), svg("text", { x: 16, y: 26 }, name));
  let y = 38 + ROW, colour = 0, trunk = 38;
  for (const group of groups) {
    const kind = `group-${colour++ % COLOURS}`, part = svg("g", { class: kind }, guiseLink(group, entity, 34, y, "start"));
    const onlyPredicted = group.facts.every((fact) => !fact.split);
    lines.append(svg("path", { d: `M14 ${y}H28`, class: `${kind}${onlyPredicted ? " predicted" : ""}` }));
    trunk = y;
    const top = y + 8;
    for (const fact of group.facts) {
      y += ROW;
      lines.append(svg("path", { d: `M40 ${top}V${y}H56`, class: `${kind}${fact.split ? "" : " predicted"}` }));
      part.append(nodeLink(group, fact, 61, y, "start", LONGEST.narrow));
    }
    if (hidden(group) > 0) part.append(moreText(group, 61, (y += ROW), "start"));
    links.append(part);
    y += ROW * 1.2;
  }
  lines.prepend(svg("path", { d: `M14 38V${trunk}`, class: "trunk" }));
  return [width, y - ROW * 0.4, lines, self, links];
}

export function neighbourhoodPicture(entity, groups) {
  const drawn = [["wide", drawWide], ["narrow", drawNarrow]].map(([kind, draw]) => {
    const [width, height, ...parts] = draw(entity, groups);
    return svg("svg", { class: `plot neighbourhood ${kind}`, viewBox: `0 0 ${width} ${Math.ceil(height)}`, role: "group", "aria-label": `Neighbourhood of ${entity.name}` }, ...parts);
  });
  const lines = groups.flatMap((group) => group.facts.map((fact) => el("li", {}, words(fact), fact.split ? "" : ` (predicted${fact.probability === null ? "" : `, ${percent(fact.probability)}`})`)));
  return el("figure", {}, ...drawn,
    el("figcaption", { class: "legend-line" },
      svg("svg", { viewBox: "0 0 30 6", "aria-hidden": "true" }, svg("path", { d: "M1 3H29" })), " known ",
      svg("svg", { viewBox: "0 0 30 6", "aria-hidden": "true" }, svg("path", { d: "M1 3H29", class: "predicted" })),
      " predicted, with its probability. One colour for each relation; the name of a relation leads to the guise of ", entity.name, " in it."),
    folded("The picture in words", el("ul", {}, lines)));
}
