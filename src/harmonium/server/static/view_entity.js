// An entity: a picture of its neighbourhood, predicted and known facts, its guises.
import { card, count, el, folded, note, say, whole } from "./dom.js";
import { compareLink, factLink, go, link } from "./address.js";
import { api, later } from "./api.js";
import { factTable, groupFacts, words } from "./facts.js";
import { guisePicture } from "./guise_plot.js";
import { nameField } from "./name_field.js";
import { joinGroups, neighbourhoodPicture } from "./neighbourhood_picture.js";

const MOST_GROUPS = 16, MOST_PICTURES = 6, MOST_PREDICTED = 8, WORTH_DRAWING = 0.05, UNLIKELY = 0.01;

function guises(entity, groups, signal) {
  const title = (group) => (group.slot === "head" ? `${group.relation.name} → ${group.facts[0].tail.name}` : `${group.relation.name} ← ${group.facts[0].head.name}`);
  const telling = [...groups].sort((a, b) => (b.facts.length > 1) - (a.facts.length > 1));  // roles of which there are several
  const list = (some, picture) => some.map((group) => {
    const { head, relation, tail } = group.facts[0], place = el("div", {});
    if (picture) {
      api("neighbours", { head: head.id, relation: relation.id, tail: tail.id, slot: group.slot, limit: 5 }, signal)
        .then((view) => place.replaceChildren(guisePicture(view))).catch(() => {});
    }
    return el("li", {}, el("a", { href: factLink(group.facts[0], group.slot), title: words(group.facts[0]) }, title(group)), place);
  });
  return [
    note(`A guise is ${entity.name} in one fact. Below are the entities nearest to it there, the further right the less alike; green ✓: the same fact is known of them.`),
    el("ul", { class: "guises pictures" }, list(telling.slice(0, MOST_PICTURES), true)),
    telling.length > MOST_PICTURES ? el("ul", { class: "chips guises" }, list(telling.slice(MOST_PICTURES), false)) : null,
  ];
}

function knownFacts(name, page) {
  const list = el("div", {}, groupFacts(page.entity, page.facts));
  let shown = [...page.facts];
  const more = el("button", { type: "button", hidden: shown.length >= page.total, onclick: async () => {
    const next = await api("facts", { entity: name, offset: shown.length, limit: 200 });
    shown = [...shown, ...next.facts];
    list.replaceChildren(...groupFacts(page.entity, shown));
    more.hidden = shown.length >= page.total;
    say(`${whole(shown.length)} of ${whole(page.total)} facts`);
  } }, "More facts");
  return card(`Known facts (${whole(page.total)})`, list, more);
}

export async function entity(values, signal) {
  const name = values.get("name"), predicting = api("predictions", { entity: name }, signal);
  predicting.catch(() => {});
  const [page, around] = await Promise.all([api("facts", { entity: name }, signal), api("neighbourhood", { entity: name }, signal)]);
  const shown = around.groups.slice(0, MOST_GROUPS), left = around.groups.length - shown.length;
  const figure = el("div", {}, neighbourhoodPicture(page.entity, shown));
  predicting.then((predictions) => {
    const probable = predictions.facts.filter((fact) => fact.probability === null || fact.probability >= WORTH_DRAWING);
    figure.replaceChildren(neighbourhoodPicture(page.entity, joinGroups(page.entity, shown, probable.slice(0, MOST_PREDICTED))));
  }).catch(() => {});
  const predicted = later("Predicted facts", "Asking the model…", predicting, (predictions) => {
    say(`${predictions.facts.length} predicted facts of ${page.entity.name}`);
    const caption = `${page.entity.name}: the most probable new facts, of ${count(predictions.queries, "relation and side", "relations and sides")} that it could have`;
    const unlikely = predictions.facts.filter((fact) => fact.probability !== null && fact.probability < UNLIKELY);
    const likely = predictions.facts.filter((fact) => !unlikely.includes(fact));
    if (predictions.facts.length) {
      return [likely.length ? factTable(caption, likely, page.entity.id) : note("None is more probable than 1 %."),
        unlikely.length ? folded("Less probable than 1 %", factTable(`${page.entity.name}: less probable facts`, unlikely, page.entity.id)) : null];
    }
    return note("No prediction: every relation that this entity could have has its value, or the graph has too few facts about it.");
  });
  const other = nameField(`Compare ${page.entity.name} with`, "entity", (chosen) => { location.hash = compareLink(page.entity, chosen); });
  say(`${page.entity.name}: ${whole(page.total)} facts`);
  return [
    el("p", { class: "crumbs" }, "Entity"), el("h2", {}, page.entity.name),
    page.entity.id === page.entity.name ? null : note(page.entity.id),
    el("p", {}, el("a", { href: link({ view: "map", name: page.entity.id }) }, "On the map")),
    card("Neighbourhood", figure, left > 0 ? note(`${count(left, "more relation")} below.`) : null),
    el("div", { class: "columns" }, predicted, knownFacts(name, page)),
    card("Guises", ...guises(page.entity, around.groups, signal)),
    el("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); if (other.given()) go({ view: "compare", first: page.entity.id, second: other.given() }); } },
      other.node, el("button", { type: "submit" }, "Compare")),
  ];
}
