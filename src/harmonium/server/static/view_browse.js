// Search by relation and type: all relations, the entities of one, its known and its missing facts.
import { card, count, el, note, say, table, whole } from "./dom.js";
import { entityLink, go, link, relationLink } from "./address.js";
import { api, later } from "./api.js";
import { factList, factTable } from "./facts.js";
import { downloads, FACT_COLUMNS, factRow } from "./download.js";
import { nameField } from "./name_field.js";

const LIMIT = 200;

function traits(summary) {
  const words = [];
  if (summary.symmetric) words.push("holds both ways");
  if (summary.one_tail) words.push("a head has one tail");
  if (summary.one_head) words.push("a tail has one head");
  if (summary.complete) words.push(summary.complete === "unknown" ? "how complete: unknown" : summary.complete);
  return words.join("; ");
}

function examples(summary, slot) {
  const items = summary[`${slot}_examples`], total = summary[`${slot}s`];
  return [items.flatMap((item, i) => [i ? ", " : "", el("a", { href: entityLink(item) }, item.name)]),
    total > items.length ? [" ", el("a", { href: link({ view: "browse", relation: summary.relation.id, slot }), class: "soft", "aria-label": `All ${total} ${slot}s of ${summary.relation.name}` }, `all ${whole(total)}`)] : []].flat();
}

const relationTable = (list) => table("All relations, those with most facts first", ["relation", "facts", "heads", "tails", "what the facts show"],
  list.map((summary) => [el("a", { href: relationLink(summary.relation) }, summary.relation.name), whole(summary.facts), examples(summary, "head"), examples(summary, "tail"), traits(summary)]), [1]);

function form(values, types) {
  const relation = values.get("relation"), text = el("input", { id: "browse-text", type: "text", maxlength: 200, placeholder: "Part of a name" });
  text.value = values.get("q") || "";
  const field = nameField("Relation", "relation", () => {}, relation && { id: relation, name: relation });
  const slot = el("select", { id: "browse-slot" }, [["", "head or tail"], ["head", "head"], ["tail", "tail"]].map(([value, label]) => el("option", { value }, label)));
  slot.value = values.get("slot") || "";
  const type = el("select", { id: "browse-type" }, el("option", { value: "" }, "any"), types.map((each) => el("option", { value: each.id }, `${each.name} (${whole(each.facts)})`)));
  type.value = values.get("type") || "";
  const labelled = (label, control) => el("div", { class: "field" }, el("label", { for: control.id }, label), control);
  const node = el("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    go({ view: "browse", relation: field.given(), slot: slot.value, type: type.value, q: text.value.trim() });
  } }, field.node, labelled("As its", slot), types.length ? labelled("Type", type) : null, labelled("Name", text), el("button", { type: "submit" }, "Search"));
  return { node, field };
}

async function entities(values, signal) {
  const asked = { q: values.get("q"), relation: values.get("relation"), slot: values.get("slot"), type: values.get("type"), limit: LIMIT };
  const matches = await api("search", asked, signal);
  say(`${matches.length} entities`);
  const heading = matches.length === LIMIT ? `The ${LIMIT} entities with most facts` : count(matches.length, "entity", "entities");
  return card(heading, matches.length ? el("ul", { class: "chips" }, matches.map((entity) => el("li", {}, el("a", { href: entityLink(entity) }, entity.name), " ", el("small", {}, whole(entity.facts))))) : note("None."),
    downloads("entities", ["id", "name", "facts"], matches.map((entity) => [entity.id, entity.name, entity.facts])));
}

function missingOf(relation, signal) {
  const container = el("div", {}, note("Every entity that could have this relation is asked; on large graphs this takes some seconds."),
    el("button", { type: "button", onclick: () => {
      container.replaceWith(later("Missing facts", "Searching…", api("missing", { relation: relation.id, limit: 50 }, signal), (result) => {
        say(`${result.facts.length} missing facts of ${relation.name}`);
        if (!result.searched) return note("This relation is too large to be searched here; `harmonium complete` searches it.");
        return result.facts.length ? [factList(result.facts), downloads(`missing ${relation.name}`, FACT_COLUMNS, result.facts.map(factRow))] : note("None: nothing seems to be missing.");
      }));
    } }, "Search for missing facts"));
  return container;
}

async function relationPart(values, list, signal) {
  const page = await api("facts", { relation: values.get("relation"), limit: 100 }, signal);
  const summary = list.find((each) => each.relation.id === page.relation.id);
  const words = [count(page.total, "fact"), summary ? `${count(summary.heads, "head")}, ${count(summary.tails, "tail")}` : "", summary ? traits(summary) : ""];
  return { page, parts: [
    el("p", { class: "crumbs" }, "Relation"), el("h2", {}, page.relation.name), note(words.filter(Boolean).join("; "), "."),
    missingOf(page.relation, signal),
    card("Known facts", factTable(`${page.relation.name}: ${page.total > 100 ? `the first 100 of ${whole(page.total)}` : whole(page.total)} known facts`, page.facts)),
  ] };
}

export async function browse(values, signal) {
  const [list, types] = await Promise.all([api("relations", { limit: 2000 }, signal), api("types", {}, signal)]);
  const filtered = ["relation", "slot", "type", "q"].some((name) => values.get(name)), { node, field } = form(values, types);
  if (!filtered) {
    say(`${list.length} relations`);
    return [el("p", { class: "crumbs" }, "Browse"), el("h2", {}, "Relations and types"), note("Search for entities by a relation in which they are, by type or by name; or choose a relation."), node, relationTable(list)];
  }
  const entityCard = await entities(values, signal);
  if (!values.get("relation")) return [el("p", { class: "crumbs" }, "Browse"), el("h2", {}, "Entities"), node, entityCard];
  const { page, parts } = await relationPart(values, list, signal);
  field.input.value = page.relation.name;
  return [...parts.slice(0, 3), node, entityCard, ...parts.slice(3)];
}
