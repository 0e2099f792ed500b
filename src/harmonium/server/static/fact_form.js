// A fact that a reviewer adds or removes by hand; the next update carries it out.
import { el, note, say } from "./dom.js";
import { errorCard, send } from "./api.js";
import { nameField } from "./name_field.js";

const SLOTS = [["head", "Head", "entity"], ["relation", "Relation", "relation"], ["tail", "Tail", "entity"]];

// `given` are names to begin with, by slot; `changed` is called when a judgement was kept.
export function factForm(given, act, signal, changed) {
  const boxes = new Map(SLOTS.map(([slot, label, kind]) => [slot, nameField(label, kind, () => {}, given[slot] && { id: given[slot], name: given[slot] })]));
  const allow = el("input", { type: "checkbox", id: "allow-new" });
  const answer = el("div", {});
  const change = (kind) => act(async () => {
    const fact = Object.fromEntries([...boxes].map(([slot, box]) => [slot, box.given()]));
    answer.replaceChildren();
    if (Object.values(fact).some((name) => !name)) {
      answer.replaceChildren(errorCard(new Error("Fill head, relation and tail.")));
      return;
    }
    try {
      const kept = await send("review/fact", { ...fact, change: kind, allow_new: allow.checked }, signal);
      const done = `Your judgement is kept: ${kind} ${kept.text}`;
      answer.replaceChildren(el("p", {}, `${done}. Undo takes it back.`));
      say(done);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      answer.replaceChildren(errorCard(error));
    }
    await changed();
  });
  const button = (kind, label) => el("button", { type: "button", onclick: () => change(kind) }, label);
  const form = el("form", { class: "tools", onsubmit: (event) => event.preventDefault() }, [...boxes.values()].map((box) => box.node),
    el("div", { class: "pair" }, button("add", "Add"), button("remove", "Remove")),
    el("div", { class: "checks" }, el("label", { for: "allow-new" }, allow, " names may be new, in a fact to add")));
  const details = el("details", { class: "card" }, el("summary", {}, "Add or remove a fact yourself"),
    note("It counts as your judgement, and changes the model with the next update."), form, answer);
  details.open = Object.values(given).some(Boolean);
  return details;
}
