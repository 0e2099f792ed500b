// A fact: how probable, why, and which entities are similar to its head or tail in it (the guise).
import { card, el, note, percent, say, whole } from "./dom.js";
import { entityLink, link } from "./address.js";
import { api } from "./api.js";
import { explain } from "./explanation.js";
import { named, words } from "./facts.js";
import { Plot } from "./guise_plot.js";
import { slider } from "./lambda_slider.js";
import { runs } from "./runs.js";

function nearList(neighbours) {
  return el("ol", { class: "near" }, neighbours.map((n) => el("li", { class: n.true ? "true" : "" },
    el("span", {}, el("a", { href: entityLink(n) }, n.name), n.true ? " ✓" : "", n.true ? el("span", { class: "unseen" }, "true") : null))));
}

function summary(fact) {
  if (fact.split) return `Known: a fact of the graph (${fact.split === "train" ? "train" : `held out: ${fact.split}`}).`;
  if (fact.probability !== null) return `Not in the graph. Probability that it is a missing fact: ${percent(fact.probability)}.`;
  return "Not in the graph, and no candidate for a missing fact: what the graph knows excludes it, or its entities do not fit the relation.";
}

function guiseCard(first, slot, ask) {
  const range = first.faithfulness, entity = first.fact[slot];
  const plots = { composed: new Plot(`Map by composed vectors around ${entity.name}`), token: new Plot(`Map by tokens around ${entity.name}`) };
  const lists = { composed: el("div", {}), token: el("div", {}) };
  const draw = (view) => {
    for (const side of ["composed", "token"]) {
      plots[side].draw(view.points, side, view[side]);
      lists[side].replaceChildren(nearList(view[side]));
    }
  };
  draw(first);
  const side = (name, title) => el("div", {}, el("h4", {}, title), plots[name].node, lists[name]);
  return card(`Entities most similar to ${entity.name} in this fact`,
    note(`Other entities in place of the ${slot}: the ${whole(first.candidates)} seen in that slot of the relation. Green ✓: also a known fact. By composed vector: alike in this role; by token: also as true in it.`),
    slider(range, ask, draw),
    el("div", { class: "columns" }, side("composed", "By composed vector"), side("token", "By token")));
}

export async function fact(values, signal) {
  const triple = { head: values.get("head"), relation: values.get("relation"), tail: values.get("tail") };
  const slot = values.get("slot") === "tail" ? "tail" : "head", opposite = slot === "head" ? "tail" : "head";
  const ask = (faithfulness, s) => api("neighbours", { ...triple, slot, lambda: faithfulness }, s);
  const [first, rated, list] = await Promise.all([ask(values.get("lambda"), signal), api("fact", triple, signal), runs(signal)]);
  const known = first.fact;
  const why = el("div", {}, el("button", { type: "button", onclick: () => explain(triple, why) }, "Explain this fact"));
  say(`${known.head.name}, ${known.relation.name}, ${known.tail.name}: rank ${whole(first.rank)}`);
  if (values.get("why")) explain(triple, why);
  return [
    el("p", { class: "crumbs" }, known.split ? `Fact (${known.split})` : "Not a known fact"),
    el("h2", {}, named(known.head), " ", el("span", { class: "soft" }, known.relation.name), " ", named(known.tail)),
    card("How probable, and why", el("p", {}, summary(rated)),
      rated.reason ? el("p", {}, "Evidence in the graph: ", rated.reason, ".") : null, why),
    note(`Rank of ${known[slot].name} among the answers for the ${slot}: ${whole(first.rank)}. `,
      el("a", { href: link({ view: "fact", ...triple, slot: opposite }) }, `Show ${known[opposite].name} instead`), " · ",
      el("a", { href: link({ view: "compare", first: known.head.id, second: known.tail.id }), "aria-label": `Compare the entities of ${words(known)}` }, "Compare the two"),
      list[0].is_reviewed ? [" · ", el("a", { href: link({ view: "review", ...triple }) }, known.split ? "Remove this fact" : "Add or reject this fact")] : null),
    guiseCard(first, slot, ask),
  ];
}
