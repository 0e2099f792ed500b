// Queries with one open slot, answered by one run, or by all runs side by side.
import { card, el, note, say, table } from "./dom.js";
import { go, link, params } from "./address.js";
import { api, errorCard, Problem } from "./api.js";
import { chance, factTable, named } from "./facts.js";
import { downloads } from "./download.js";
import { nameField } from "./name_field.js";
import { runs } from "./runs.js";

const SLOTS = ["head", "relation", "tail"], LIMIT = 20;
const title = (word) => word[0].toUpperCase() + word.slice(1);

function form(given, values, several) {
  const check = (name, label) => {
    const box = el("input", { type: "checkbox", id: `check-${name}` });
    box.checked = values.has(name);
    return [box, el("label", { for: `check-${name}` }, box, ` ${label}`)];
  };
  const boxes = new Map(SLOTS.map((slot, i) =>
    [slot, nameField(title(slot), slot === "relation" ? "relation" : "entity", () => {}, given[i] && { id: given[i], name: given[i] })]));
  const [fresh, freshLabel] = check("new", "only new facts"), [all, allLabel] = check("all", "all entities, whatever their type"), [both, bothLabel] = check("both", "all runs side by side");
  const submit = (event) => {
    event.preventDefault();
    const filled = [...boxes].map(([slot, box]) => [slot, box.given()]);
    const flags = [["new", fresh], ["all", all], ["both", both]].filter(([, box]) => box.checked).map(([name]) => [name, 1]);
    go([["view", "ask"], ...filled, ...flags]);
  };
  const node = el("form", { class: "tools", onsubmit: submit }, [...boxes.values()].map((box) => box.node), el("button", { type: "submit" }, "Ask"),
    el("div", { class: "checks" }, freshLabel, allLabel, several ? bothLabel : null));
  return { node, boxes };
}

function onlyAnswer(result) {
  if (!result.has_one_answer) return null;
  return note("This relation has one answer to such a query, and the graph knows it. ",
    el("a", { href: link([...params()].filter(([name]) => name !== "all").concat([["all", 1]])) }, "Show other candidates"));
}

function answersOfOne(result) {
  return card(result.query, onlyAnswer(result), result.answers.length
    ? factTable(`${result.query}: best answers first; known facts with their split`, result.answers)
    : note("No new answer."));
}

// The answers of all runs: a row for each answer, a column for each run.
function sideBySide(list, results) {
  const open = results.find(Boolean).open, rows = new Map();
  results.forEach((result, run) => (result ? result.answers : []).forEach((answer, i) => {
    const id = answer[open].id;
    if (!rows.has(id)) rows.set(id, { item: answer[open], cells: list.map(() => null), best: Infinity });
    const row = rows.get(id);
    row.cells[run] = { answer, rank: i + 1 };
    row.best = Math.min(row.best, i + 1);
  }));
  const sorted = [...rows.values()].sort((a, b) => a.best - b.best);
  const text = (cell) => (cell ? el("span", {}, chance(cell.answer), " ", el("small", {}, `no. ${cell.rank}`)) : el("span", { class: "soft" }, `not among the first ${LIMIT}`));
  const columns = ["answer", ...list.flatMap((run) => [`${run.name}: place`, `${run.name}: probability`])];
  const cells = sorted.map((row) => [row.item.id, ...row.cells.flatMap((cell) => [cell ? cell.rank : null, cell ? cell.answer.split || cell.answer.probability : null])]);
  const query = results.find(Boolean).query;
  return card(query, table(`${query}: answers of ${list.length} runs`, ["answer", ...list.map((run) => run.name)],
    sorted.map((row) => [open === "relation" ? row.item.name : named(row.item), ...row.cells.map(text)])), downloads(query, columns, cells));
}

export async function ask(values, signal) {
  const given = SLOTS.map((slot) => values.get(slot)), list = await runs(signal);
  const { node, boxes } = form(given, values, list.length > 1);
  const top = [el("p", { class: "crumbs" }, "Ask"), el("h2", {}, "What is missing?"), note("Fill two of the three; the model answers the third."), node];
  if (given.filter(Boolean).length !== 2) {
    if (given.some(Boolean)) top.push(errorCard(new Problem("Fill exactly two of head, relation and tail.", [])));
    return top;
  }
  const query = { head: given[0], relation: given[1], tail: given[2], limit: LIMIT, new_only: values.has("new"), typed: !values.has("all") };
  const both = values.has("both") && list.length > 1;
  try {
    const asked = both ? list.map((run) => api("answers", { ...query, run: run.number }, signal)) : [api("answers", query, signal)];
    const settled = await Promise.allSettled(asked), failed = settled.find((part) => part.status === "rejected");
    const results = settled.map((part) => part.value || null), result = results.find(Boolean);
    if (!result) throw failed.reason;
    say(`${result.answers.length} answers to ${result.query}`);
    for (const [slot, box] of boxes) if (slot !== result.open && result.answers.length) box.input.value = result.answers[0][slot].name;
    if (failed) top.push(errorCard(failed.reason));
    top.push(both ? sideBySide(list, results) : answersOfOne(result));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    top.push(errorCard(error));
  }
  return top;
}
