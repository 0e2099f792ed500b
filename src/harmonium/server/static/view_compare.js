// Two entities side by side.
import { card, count, el, note, say, whole } from "./dom.js";
import { entityLink, go, relationLink } from "./address.js";
import { api, errorCard } from "./api.js";
import { downloads } from "./download.js";
import { factTable, sentence, splitMark } from "./facts.js";
import { nameField } from "./name_field.js";

function roles(title, part) {
  const groups = new Map();
  for (const role of part.roles) {
    const key = `${role.slot} ${role.relation.id}`;
    if (!groups.has(key)) groups.set(key, { role, items: [] });
    groups.get(key).items.push(el("li", {}, el("a", { href: entityLink(role.other) }, role.other.name)));
  }
  return card(`${title} (${whole(part.total)})`, [...groups.values()].map(({ role, items }) => el("div", { class: "group" },
    el("h4", {}, role.slot === "head" ? "" : "← ", el("a", { href: relationLink(role.relation) }, role.relation.name), role.slot === "head" ? " →" : ""),
    el("ul", { class: "chips" }, items))),
  part.total ? null : note("None."), part.total > part.roles.length ? note(`The first ${whole(part.roles.length)}.`) : null);
}

function result(comparison) {
  const { first, second } = comparison, rows = [];
  for (const [whose, part] of [["both", comparison.common], [first.name, comparison.only_first], [second.name, comparison.only_second]]) {
    for (const role of part.roles) rows.push([whose, role.relation.name, role.slot, role.other.id, role.other.name]);
  }
  const same = first.id === second.id;
  return [
    el("p", { class: "lead" }, same ? "An entity and itself. " : "",
      `${first.name} and ${second.name} have ${count(comparison.common.total, "fact")} in common. Their vectors have a cosine of ${comparison.similarity.toFixed(2)}`,
      same ? "." : `: of ${whole(comparison.entities)} entities ${second.name} is number ${whole(comparison.rank)} in similarity to ${first.name}.`),
    el("div", { class: "columns" },
      card("Known facts between them", comparison.links.length ? el("ul", {}, comparison.links.map((fact) => el("li", {}, sentence(fact), splitMark(fact.split)))) : note("None.")),
      card("Predicted facts between them", comparison.predicted.length ? factTable(`${first.name} and ${second.name}: facts that the graph lacks, most probable first`, comparison.predicted) : note("None: no relation fits both, or all of them are known."))),
    roles("In common", comparison.common),
    el("div", { class: "columns" }, roles(`Only ${first.name}`, comparison.only_first), roles(`Only ${second.name}`, comparison.only_second)),
    downloads(`${first.name} ${second.name}`, ["of", "relation", "slot", "other", "other_name"], rows),
  ];
}

export async function compare(values, signal) {
  const given = ["first", "second"].map((name) => values.get(name));
  const fields = given.map((name, i) => nameField(i ? "Second entity" : "First entity", "entity", () => {}, name && { id: name, name }));
  const form = el("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    go({ view: "compare", first: fields[0].given(), second: fields[1].given() });
  } }, fields.map((field) => field.node), el("button", { type: "submit" }, "Compare"));
  const top = [el("p", { class: "crumbs" }, "Compare")];
  if (!given.every(Boolean)) return [...top, el("h2", {}, "Compare two entities"), note("What they have in common, what differs, and which facts may link them."), form];
  try {
    const comparison = await api("compare", { first: given[0], second: given[1] }, signal);
    fields[0].input.value = comparison.first.name;
    fields[1].input.value = comparison.second.name;
    say(`${comparison.first.name} and ${comparison.second.name} compared`);
    return [...top, el("h2", {}, comparison.first.name, " and ", comparison.second.name), form, ...result(comparison)];
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return [...top, el("h2", {}, "Compare two entities"), form, errorCard(error)];
  }
}
