// The start page: what this is, what the graph lacks, queries to try, a picture.
import { card, count, el, note, percent, say, whole } from "./dom.js";
import { compareLink, entityLink, link, relationLink } from "./address.js";
import { api, later } from "./api.js";
import { entityMap } from "./entity_map.js";
import { factList } from "./facts.js";
import { downloads, FACT_COLUMNS, factRow } from "./download.js";

const SHOWN = 8, CHOSEN = 24;

function query(fact, open) {
  const given = { head: fact.head.id, relation: fact.relation.id, tail: fact.tail.id };
  delete given[open];
  const words = ["head", "relation", "tail"].map((slot) => (slot === open ? "?" : fact[slot].name)).join(" · ");
  return el("li", {}, el("a", { href: link({ view: "ask", ...given }) }, words));
}

// Queries whose answers the model is fairly sure of, one for each relation, and a comparison.
function queries(missing, map) {
  const relations = new Map(missing.map((fact) => [fact.relation.id, fact]));
  const items = [...relations.values()].slice(0, 4).map((fact, i) => query(fact, i % 2 ? "head" : "tail"));
  const pair = map.points.slice(0, 40).flatMap((a, i, points) => points.slice(i + 1).filter((b) => b.role === a.role).map((b) => [a, b]))[0];
  if (pair) items.push(el("li", {}, el("a", { href: compareLink(...pair) }, `What do ${pair[0].name} and ${pair[1].name} have in common?`)));
  if (missing.length) items.push(el("li", {}, el("a", { href: relationLink(missing[0].relation) }, `Which facts of “${missing[0].relation.name}” are missing?`)));
  return el("ul", { class: "questions" }, items);
}

function missingFacts(result) {
  if (!result.facts.length) return note(result.searched ? "None: the model has nothing to add." : "The graph is too large to be searched here; `harmonium complete` searches it.");
  const rest = result.facts.slice(SHOWN);
  const left = result.relations - result.searched, best = result.facts.reduce((most, fact) => Math.max(most, fact.probability), 0) || null;
  const more = rest.length ? el("button", { type: "button", onclick: () => { more.replaceWith(factList(rest)); say(`${result.facts.length} facts`); } }, `Show ${rest.length} more`) : null;
  return [
    note("Predicted, but not in the graph; each with the strongest evidence that the known facts give.", best !== null && best < 0.5 ? ` None is more probable than ${percent(best)}.` : ""),
    factList(result.facts.slice(0, SHOWN)), more,
    left ? note(`${count(left, "large relation")} left out; \`harmonium complete\` searches all.`) : null,
    downloads("missing facts", FACT_COLUMNS, result.facts.map(factRow)),
  ];
}

export async function home(values, signal) {
  const missing = api("missing", { limit: CHOSEN }, signal);
  missing.catch(() => {});  // shown where it is awaited
  const [info, map, entities] = await Promise.all([api("info", {}, signal), api("map", { limit: 400, links: 600 }, signal), api("search", { limit: 16 }, signal)]);
  const graph = info.graph, facts = Object.values(graph.triples).reduce((a, b) => a + b, 0);
  say("Start page");
  return [
    el("h2", {}, "Explore ", graph.name),
    el("p", { class: "lead" },
      `${graph.name} is a graph of ${count(facts, "fact")} about ${count(graph.entities, "entity", "entities")}, and a model has learned from it which facts it may lack. `,
      "Read what the model predicts, how sure it is and why, or ask it a query of your own."),
    el("div", { class: "columns home" },
      later("Facts that the graph may lack", "Searching the graph for missing facts; this can take some seconds…", missing, missingFacts),
      el("div", {},
        later("Queries to try", "Waiting for the search…", missing, (result) => queries(result.facts, map)),
        card("The graph as a picture",
          el("a", { href: link({ view: "map" }), class: "picture", "aria-label": "Open the map" }, entityMap(map, null, `The ${whole(map.points.length)} most connected entities and the facts between them`, { mostLabels: 26, stretched: true }).node),
          note("The most connected entities; similar ones are near each other, lines are known facts."))),
    ),
    card("Entities with most facts", el("ul", { class: "chips" }, entities.map((entity) =>
      el("li", {}, el("a", { href: entityLink(entity) }, entity.name), " ", el("small", {}, whole(entity.facts))))),
      el("p", {}, el("a", { href: link({ view: "browse" }) }, "All relations and types"))),
  ];
}
