// Facts as sentences, tables and lists.
import { el, percent, short, table } from "./dom.js";
import { entityLink, factLink, relationLink } from "./address.js";
import { downloads, FACT_COLUMNS, factRow } from "./download.js";

export function chance(fact) {
  if (fact.split) return el("span", { class: "chance" }, `known (${fact.split})`);
  if (fact.probability === null) return el("span", { class: "chance" }, `score ${short(fact.score)}`);
  return el("span", { class: "chance", title: `score ${short(fact.score)}` },
    el("meter", { min: 0, max: 1, value: fact.probability, "aria-hidden": "true" }), percent(fact.probability));
}
export const splitMark = (split) => (split && split !== "train" ? el("span", { class: "split", title: `held out: ${split}` }, split) : null);
export const named = (item, current) => (current && item.id === current ? el("span", {}, item.name) : el("a", { href: entityLink(item) }, item.name));
export const words = (fact) => `${fact.head.name} ${fact.relation.name} ${fact.tail.name}`;
const whyLink = (fact) => el("a", {
  href: factLink(fact, fact.open === "head" ? "tail" : "head"), "aria-label": `Why: ${fact.head.name}, ${fact.relation.name}, ${fact.tail.name}`,
}, "why");

export function sentence(fact, current) {
  return [named(fact.head, current), " ", el("span", { class: "soft" }, fact.relation.name), " ", named(fact.tail, current)];
}

export function factTable(caption, facts, current) {
  const rows = facts.map((fact) => [sentence(fact, current), chance(fact), whyLink(fact)]);
  const last = facts.length && facts[0].probability === null && !facts[0].split ? "score" : "probability";
  return el("div", {}, table(caption, ["fact", last, el("span", { class: "unseen" }, "explanation")], rows, [2]),
    downloads(caption, FACT_COLUMNS, facts.map(factRow)));
}

// Missing facts with their reasons.
export function factList(facts) {
  return el("ul", { class: "probable" }, facts.map((fact) => el("li", {},
    el("p", {}, sentence(fact), " ", chance(fact), " ", whyLink(fact)),
    fact.reason ? el("p", { class: "soft" }, fact.reason) : null)));
}

export function groupFacts(entity, facts) {
  const groups = new Map();
  for (const fact of facts) {
    const isHead = fact.head.id === entity.id;
    const key = `${isHead} ${fact.relation.id}`;
    if (!groups.has(key)) groups.set(key, { relation: fact.relation, isHead, items: [] });
    const other = isHead ? fact.tail : fact.head;
    groups.get(key).items.push(el("li", {}, el("a", { href: entityLink(other) }, other.name), splitMark(fact.split), " ",
      el("a", { href: factLink(fact, isHead ? "head" : "tail"), class: "soft", "aria-label": `Details: ${fact.head.name}, ${fact.relation.name}, ${fact.tail.name}` }, "details")));
  }
  return [...groups.values()].map((group) => el("div", { class: "group" },
    el("h4", {}, group.isHead ? "" : "← ", el("a", { href: relationLink(group.relation) }, group.relation.name), group.isHead ? " →" : ""),
    el("ul", { class: "chips" }, group.items)));
}
