// The map of all entities, or around one.
import { el, folded, note, say, whole } from "./dom.js";
import { entityLink, link } from "./address.js";
import { api } from "./api.js";
import { entityMap, mapLegend } from "./entity_map.js";

const LISTED = 100;

export async function map(values, signal) {
  const chosen = values.get("name"), drawn = await api("map", { limit: 1000, entity: chosen }, signal);
  const self = chosen ? drawn.points[drawn.points.length - 1] : null;
  let zoom = self ? 2.56 : 1;
  const { node, draw } = entityMap(drawn, self && self.id, `Map of ${whole(drawn.points.length)} entities`);
  const zoomBy = (factor) => () => { zoom = Math.max(1, Math.min(12, zoom * factor)); draw(zoom); };
  say(`Map of ${whole(drawn.points.length)} entities`);
  return [
    el("p", { class: "crumbs" }, "Map"), el("h2", {}, self ? `Around ${self.name}` : "All entities"),
    note(`The ${whole(drawn.points.length)} most connected entities along the two principal axes of the entity vectors (${Math.round(100 * drawn.share)} % of their variance). Colour: the most frequent role of an entity.`),
    el("div", { class: "tools" },
      el("button", { type: "button", onclick: zoomBy(1.6) }, "Zoom in"), el("button", { type: "button", onclick: zoomBy(1 / 1.6) }, "Zoom out"),
      self ? el("a", { href: link({ view: "entity", name: chosen }) }, `Facts of ${self.name}`) : null),
    node, mapLegend(drawn),
    folded(`The ${Math.min(LISTED, drawn.points.length)} most connected entities as a list`, el("ul", { class: "chips" }, drawn.points.slice(0, LISTED).map((p) => el("li", {}, el("a", { href: entityLink(p) }, p.name))))),
  ];
}
