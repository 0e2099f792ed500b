// Review: one predicted fact after the other is accepted or rejected, by keys or buttons; how precise predictions are so far.
import { card, count, el, folded, note, percent, say, table, whole } from "./dom.js";
import { factLink } from "./address.js";
import { api, errorCard, later, send } from "./api.js";
import { downloads } from "./download.js";
import { explain } from "./explanation.js";
import { factForm } from "./fact_form.js";
import { chance, sentence, words } from "./facts.js";
import { joinGroups, neighbourhoodPicture } from "./neighbourhood_picture.js";
import { reliabilityPlot } from "./reliability_plot.js";
import { UpdateCard } from "./update_card.js";

const VERDICTS = [["accepted", "Accept", "a"], ["rejected", "Reject", "r"], ["unsure", "Unsure", "u"]];
const EVERY = 15000;  // milliseconds after which the judgements of others are looked up
const MOST_GROUPS = 12;
const COLUMNS = ["head", "relation", "tail", "verdict", "reviewer", "time", "comment", "probability", "uncorrected", "rank", "order", "run", "text"];
const MEANING = { use: "by use: probable and far-reaching facts first", teach: "by what teaches most: uncertain facts first" };

const idsOf = (fact) => ({ head: fact.head.id, relation: fact.relation.id, tail: fact.tail.id });
const key = (letter) => el("kbd", { "aria-hidden": "true" }, letter.toUpperCase());
const isTyping = (target) => /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && target.type !== "checkbox";

async function picture(entity, fact, signal) {
  const around = await api("neighbourhood", { entity: entity.id }, signal);
  const predicted = { ...fact, split: null };
  return neighbourhoodPicture(entity, joinGroups(entity, around.groups.slice(0, MOST_GROUPS), [predicted]));
}

function neighbourhood(entity, fact, signal) {
  return later(`Known of ${entity.name}`, "Loading…", picture(entity, fact, signal), (figure) => figure);
}

function precisionCard(summary) {
  const rows = summary.bins.filter((bin) => bin.facts).map((bin) => [
    `${Math.round(100 * bin.low)} to ${Math.round(100 * bin.high)} %`, whole(bin.facts), percent(bin.stated), percent(bin.accepted), `${percent(bin.at_least)} to ${percent(bin.at_most)}`,
  ]);
  const all = summary.overall;
  return card("Precision so far",
    el("p", {}, `${count(summary.accepted, "fact")} accepted, ${whole(summary.rejected)} rejected, ${whole(summary.unsure)} unsure, ${whole(summary.disputed.length)} disputed.`,
      all.facts ? ` Accepted ${percent(all.accepted)} (95 % interval ${percent(all.interval[0])} to ${percent(all.interval[1])}); stated ${percent(all.stated)}.` : ""),
    rows.length ? [reliabilityPlot(summary.bins), table("Accepted against stated probability", ["probability", "judged", "stated", "accepted", "95 % interval"], rows, [1, 2, 3, 4])]
      : note("The first judgements will show here how right the probabilities are."),
    note("The queue chooses facts by their probability, so compare within a row; all together say little about the graph."));
}

function disputedCard(summary, judge) {
  if (!summary.disputed.length) return null;
  return card("Disagreements", note("Each reviewer may judge again; a fact counts once all agree."), el("ul", { class: "probable" }, summary.disputed.map((judgements) => el("li", {},
    el("p", {}, judgements[0].text),
    el("p", { class: "soft" }, judgements.map((each) => `${each.reviewer}: ${each.verdict}${each.comment ? ` (${each.comment})` : ""}`).join("; ")),
    el("p", {}, VERDICTS.map(([verdict, label]) => el("button", { type: "button", "aria-label": `${label}: ${judgements[0].text}`, onclick: () => judge(judgements[0], verdict) }, label)))))));
}

function recentCard(state) {
  const saved = el("div", {});
  const save = el("button", { type: "button", onclick: async () => {
    const all = await api("review/judgements", { run: null });
    saved.replaceChildren(downloads("judgements", COLUMNS, all.map((each) => COLUMNS.map((column) => each[column]))));
    say(`${all.length} judgements`);
  } }, "Export all judgements");
  const list = state.recent.length ? table(`The last judgements of ${state.reviewer}`, ["fact", "verdict", "comment"],
    state.recent.map((each) => [each.text, each.verdict, each.comment])) : note("None yet.");
  return card("Your last judgements", list, el("p", {}, save), saved);
}

// The page of one reviewer: what is shown, what is being sent, and what the keys do.
class Desk {
  constructor(signal) {
    this.signal = signal;
    this.offer = null;
    this.sending = false;
    this.refreshes = 0;
    this.fact = el("div", {});
    this.state = el("div", {});
    this.message = el("p", { class: "soft", role: "status" });
    this.shortcuts = el("input", { type: "checkbox", id: "shortcuts", checked: true });
    this.update = new UpdateCard(signal, (work) => this.doing(work), () => this.refresh());
    this.run = null;
  }

  // One request at a time: a second key before the answer is ignored.
  async doing(work) {
    if (this.sending) return;
    this.sending = true;
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") {
        this.message.replaceChildren(errorCard(error));
        this.refreshLater();
      }
    } finally {
      this.sending = false;
    }
  }

  // The next fact can be judged meanwhile; of several answers the last one asked for is shown.
  refreshLater() {
    this.refresh().catch((error) => { if (error.name !== "AbortError") say(error.message); });
  }

  async refresh() {
    const turn = ++this.refreshes, state = await api("review/state", { run: null }, this.signal);
    if (turn !== this.refreshes) return state;
    this.run = this.run || state.run;
    if (state.run !== this.run) this.moved(state.run);
    this.update.show(state);
    const judge = (judgement, verdict) => this.doing(async () => {
      await send("review/judge", { head: judgement.head, relation: judgement.relation, tail: judgement.tail, verdict }, this.signal);
      await this.refresh();
    });
    this.state.replaceChildren(...[el("div", { class: "columns" }, precisionCard(state.summary), recentCard(state)), disputedCard(state.summary, judge)].filter(Boolean));
    return state;
  }

  // Another reviewer has opened an updated run: what this page shows belongs to the one before.
  moved(run) {
    this.message.replaceChildren(`The server now shows the updated run ${run}. `, el("button", { type: "button", onclick: () => location.reload() }, "Go on with it"));
  }

  async next(first) {
    this.offer = await send("review/next", { first: first || null }, this.signal);
    this.draw();
  }

  draw() {
    const { fact, rank, known_facts: known, earlier, left, waiting } = this.offer;
    if (!fact) {
      this.comment = null;
      this.fact.replaceChildren(card("No fact is left to judge", note(waiting ? `${count(waiting, "fact")} are being judged by others.` : "Start the server with a larger --top for more."),
        el("p", {}, el("button", { type: "button", onclick: () => this.doing(() => this.next()) }, "Look again"), this.undoButton())));
      return;
    }
    this.comment = el("input", { id: "comment", type: "text", maxlength: 2000, onkeydown: (event) => { if (event.key === "Enter" || event.key === "Escape") { event.preventDefault(); this.heading.focus(); } } });
    this.heading = el("p", { class: "judged-fact", tabindex: "-1" }, sentence(fact));
    this.why = el("div", {});
    const unsure = earlier.map((each) => note(`${each.reviewer} was unsure on ${each.time.slice(0, 10)}${each.comment ? `: ${each.comment}` : ""}.`));
    this.fact.replaceChildren(
      card("Is this true?", this.heading,
        el("p", {}, chance(fact), el("span", { class: "soft" }, ` no. ${whole(rank)} · ${count(known, "known fact")} of its entities · ${whole(left)} left`)),
        fact.reason ? el("p", {}, "Evidence in the graph: ", fact.reason, ".") : null, ...unsure,
        el("div", { class: "verdicts" }, VERDICTS.map(([verdict, label, letter]) =>
          el("button", { type: "button", class: verdict, "aria-keyshortcuts": letter, onclick: () => this.judge(verdict) }, label, key(letter)))),
        el("div", { class: "comment" }, el("label", { for: "comment" }, "Comment", key("c")), this.comment),
        el("p", {}, this.undoButton(), " ", el("button", { type: "button", "aria-keyshortcuts": "e", onclick: () => this.explain() }, "Explain", key("e")), " ", el("a", { href: factLink(fact, "head") }, "All about this fact")), this.why),
      neighbourhood(fact.head, fact, this.signal),
      folded(`Known of ${fact.tail.name}`, neighbourhood(fact.tail, fact, this.signal)));
  }

  undoButton() {
    return el("button", { type: "button", "aria-keyshortcuts": "z", onclick: () => this.undo() }, "Undo", key("z"));
  }

  judge(verdict) {
    return this.doing(async () => {
      if (!this.offer || !this.offer.fact) return;
      const fact = this.offer.fact, done = `${verdict}: ${words(fact)}`;
      await send("review/judge", { ...idsOf(fact), verdict, comment: this.comment.value }, this.signal);
      await this.next();
      this.announce(done);
      this.refreshLater();
    });
  }

  undo() {
    return this.doing(async () => {
      const undone = await send("review/undo", {}, this.signal);
      await this.next({ head: undone.head, relation: undone.relation, tail: undone.tail });
      if (this.comment && undone.comment) this.comment.value = undone.comment;
      this.announce(`undone: ${undone.verdict}, ${undone.text}`);
      this.refreshLater();
    });
  }

  announce(text) {
    const fact = this.offer.fact;
    this.message.replaceChildren(text);
    say(`${text}. ${fact ? `Next: ${words(fact)}${fact.probability === null ? "" : `, ${percent(fact.probability)}`}` : "No fact is left"}`);
    if (this.heading && fact) this.heading.focus({ preventScroll: true });
  }

  explain() {
    if (this.offer && this.offer.fact) explain(idsOf(this.offer.fact), this.why);
  }

  press(event) {
    if (!this.shortcuts.checked || event.ctrlKey || event.metaKey || event.altKey || event.repeat || isTyping(event.target)) return;
    const letter = event.key.toLowerCase(), verdict = VERDICTS.find((each) => each[2] === letter);
    const actions = new Map([["z", () => this.undo()], ["e", () => this.explain()], ["c", () => this.comment && this.comment.focus()]]);
    if (!verdict && !actions.has(letter)) return;
    event.preventDefault();
    if (verdict) this.judge(verdict[0]);
    else actions.get(letter)();
  }
}

export async function review(values, signal) {
  const desk = new Desk(signal), given = Object.fromEntries(["head", "relation", "tail"].map((slot) => [slot, values.get(slot)]));
  const [state] = await Promise.all([desk.refresh(), desk.next()]);
  document.addEventListener("keydown", (event) => desk.press(event), { signal });
  const timer = setInterval(() => { if (!document.hidden && !desk.sending) desk.refreshLater(); }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  say(`Review as ${state.reviewer}`);
  return [
    el("h2", {}, "Review"),
    note(`${state.reviewer}, ${MEANING[state.order] || state.order}. Every judgement is kept at once. `,
      desk.shortcuts, " ", el("label", { for: "shortcuts" }, "Keys: A accept, R reject, U unsure, C comment, Z undo, E explain")),
    desk.message, desk.fact, desk.update.node, factForm(given, (work) => desk.doing(work), signal, () => desk.refresh()), desk.state,
  ];
}
