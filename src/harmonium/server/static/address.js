// The address after # says what is shown, and of which run.

export const params = () => new URLSearchParams(location.hash.slice(1));

export function link(values) {
  const entries = (Array.isArray(values) ? values : Object.entries(values)).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const run = params().get("run");
  if (run && !entries.some(([name]) => name === "run")) entries.push(["run", run]);
  return "#" + new URLSearchParams(entries);
}
export const go = (values) => (location.hash = link(values));
export const entityLink = (entity) => link({ view: "entity", name: entity.id });
export const relationLink = (relation) => link({ view: "browse", relation: relation.id });
export const compareLink = (first, second) => link({ view: "compare", first: first.id, second: second.id });
export const factLink = (fact, slot) =>
  link({ view: "fact", head: fact.head.id, relation: fact.relation.id, tail: fact.tail.id, slot: slot || "head" });

export function replaceParam(name, value) {
  const now = params();
  now.set(name, value);
  history.replaceState(null, "", "#" + now);
}
