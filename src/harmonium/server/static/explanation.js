// The explanation of a fact: the facts that count first, in words; harmony and directions folded away.
import { el, folded, note, percent, say, short, table, whole } from "./dom.js";
import { replaceParam } from "./address.js";
import { api, errorCard } from "./api.js";

const STATES = new Map([["composed", "composed vector"], ["token", "token"], ["empty", "token of x = 0"]]);
const signed = (x) => (x > 0 ? "+" : "") + short(x);

// Candidates in rows, constraints in columns, what each adds to the harmony in the cells; the cells that decide are bold.
function tableauParts(tableau) {
  if (!tableau) return [];
  const last = tableau.constraints.length + 1, adds = (x) => (x > 0 ? "+" : "") + x.toFixed(1);
  const asked = tableau.candidates.findIndex((each) => each.asked), rival = tableau.candidates.findIndex((each) => !each.asked);
  const cell = (row, each, i) => (i === tableau.decided && (row === asked || row === rival) ? el("strong", {}, adds(each.value)) : adds(each.value));
  const rows = tableau.candidates.map((each, row) => [each.asked ? el("strong", {}, each.name) : each.name,
    ...each.cells.map((one, i) => cell(row, one, i)), each.harmony.toFixed(1), each.known ? "known" : each.probability === null ? "" : percent(each.probability)]);
  const meanings = tableau.constraints.map((constraint, i) => el("li", {}, el("strong", {}, constraint.title), `: ${constraint.meaning}.`,
    constraint.family !== "rest" && asked >= 0 && tableau.candidates[asked].cells[i].texts.length ? ` ${tableau.candidates[asked].name}: ${tableau.candidates[asked].cells[i].texts[0]}.` : ""));
  return [
    el("p", {}, tableau.verdict),
    table(`${tableau.query}: what speaks for each candidate`, ["candidate", ...tableau.constraints.map((each) => each.title), "sum", "probability"], rows, [...Array(last + 1).keys()].map((i) => i + 1)),
    folded("What the columns mean, and the facts behind them", el("ul", { class: "reasons" }, meanings)),
  ];
}

function necessaryList(explanation) {
  const rank = explanation.rank_by_vectors;
  const items = explanation.necessary.map((each, i) => el("li", {}, el("strong", {}, each.fact.join(" ")),
    `: without it${i ? " and those above" : ""} ${each.rank > rank ? "" : "still "}answer ${whole(each.rank)}.`));
  return items.length ? el("div", {}, el("h4", {}, explanation.is_decided ? "Facts it depends on" : "Facts that support it most"), el("ol", { class: "reasons" }, items), el("p", {}, explanation.verdict)) : null;
}

function reasonItem(reason) {
  const supports = reason.effect < 0;
  return el("li", {}, el("strong", {}, reason.fact.join(" ")),
    `: speaks ${supports ? "for" : "against"} it; without this fact alone the score would be about ${short(Math.abs(reason.effect))} ${supports ? "lower" : "higher"}.`);
}

function reasonList(reasons) {
  return reasons.length ? folded("Effects of single facts", el("ul", { class: "reasons" }, reasons.map(reasonItem))) : null;
}

function detailParts(explanation) {
  const inside = explanation.details, parts = Object.entries(inside.harmony), shift = inside.shift, rank = explanation.rank;
  const example = (direction) => direction.facts.slice(0, 2).map((fact) => fact.name.join(" · ")).join("; ");
  return [
    el("p", {}, `Score ${short(explanation.score)}; rank ${whole(rank.head)} as a head, ${whole(rank.tail)} as a tail.`,
      shift ? ` From composed vector to token its harmony rises by ${short(shift.gain)}; the shift has length ${short(shift.shared)} in common with all facts and ${short(shift.specific)} of its own.` : ""),
    ...explanation.notes.map((text) => note(text)),
    inside.nearest.length ? table("Nearest training facts", ["fact", "distance"], inside.nearest.map((near) => [near.fact.join(" · "), short(near.distance)]), [1]) : null,
    parts.length ? table("Harmony = core harmony + faithfulness, at each state", ["state", "core", "faithfulness", "total"],
      parts.map(([name, p]) => [STATES.get(name) || name, short(p.core), short(p.faithfulness), short(p.total)]), [1, 2, 3]) : null,
    inside.directions.length ? table("Directions of W with most effect on the score, with training facts far along them", ["examples", "contribution"],
      inside.directions.map((d) => [example(d), signed(d.contribution)]), [1]) : null,
  ].filter(Boolean);
}

// How the score comes about, asked for when it is opened.
function details(triple) {
  const content = el("div", {}), box = folded("Details", content);
  box.addEventListener("toggle", async () => {
    content.replaceChildren(note("Computing…"));
    try {
      content.replaceChildren(...detailParts(await api("explain", { ...triple, details: true })));
    } catch (error) {
      content.replaceChildren(errorCard(error));
    }
  }, { once: true });
  return box;
}

export async function explain(triple, container) {
  container.replaceChildren(note("Computing the explanation; on large graphs this takes a while…"));
  say("Computing the explanation");
  try {
    const explanation = await api("explain", triple);
    const necessary = necessaryList(explanation);
    container.replaceChildren(...[
      ...tableauParts(explanation.tableau), necessary || note(explanation.verdict), reasonList(explanation.reasons), details(triple),
    ].filter(Boolean));
    replaceParam("why", 1);
    say("Explanation shown");
  } catch (error) {
    container.replaceChildren(errorCard(error));
  }
}
