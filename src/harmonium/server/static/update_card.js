// The judgements so far, applied to the model: what would change, how far the update is, and the updated run to open.
import { card, count, el, note, say, short, whole } from "./dom.js";
import { api, errorCard, send } from "./api.js";

const EVERY = 1000;  // milliseconds between requests for the progress of an update

function changes(state) {
  const parts = [[state.to_add, "to add"], [state.to_remove, "to remove"], [state.to_record, "to record as false"]];
  return parts.filter(([n]) => n).map(([n, what]) => `${whole(n)} ${what}`).join(", ");
}

// `act` runs one request at a time; `refresh` asks for the state of the review.
export class UpdateCard {
  constructor(signal, act, refresh) {
    Object.assign(this, { signal, act, refresh });
    this.content = el("div", {});
    this.node = card("Update the model", this.content);
    this.drawn = null;
    signal.addEventListener("abort", () => clearTimeout(this.timer));
  }

  // Drawn again only where something has changed, so that buttons keep the focus.
  show(state) {
    this.state = state;
    const now = JSON.stringify([changes(state), state.update]);
    if (now === this.drawn) return;
    const before = this.drawn === null ? null : this.last;
    this.drawn = now;
    this.last = state.update.state;
    this.content.replaceChildren(...[this.draw(state)].flat().filter(Boolean));
    if (this.last === "running") this.watch();
    else if (before === "running") say(this.last === "done" ? `The updated run ${state.update.run} is ready` : `The update failed: ${state.update.error}`);
  }

  draw({ update, ...state }) {
    const pending = state.to_add + state.to_remove + state.to_record;
    if (update.state === "running") {
      return [el("p", { id: "update-stage" }, `${update.reviewer} updates the model: ${update.stage}${update.steps ? `, ${whole(update.steps)} done` : ""}.`),
        el("progress", { "aria-labelledby": "update-stage" }), note("You can go on judging; later judgements come with the next update.")];
    }
    const start = el("button", { type: "button", class: "main", onclick: () => this.send("review/update") }, `Update the model with ${count(pending, "judgement")}`);
    const offer = pending ? [el("p", {}, `Facts on which reviewers agree, and which this model does not know yet: ${changes(state)}.`), el("p", {}, start),
      note(`The updated model goes into a new folder; ${state.run} stays as it is. Rejected facts are never proposed again.`)]
      : [note("The model reflects all judgements on which reviewers agree.")];
    if (update.state === "done") return [this.ready(update), ...(pending ? [] : offer)];
    if (update.state === "failed") return [errorCard(new Error(`The update failed: ${update.error}. The run and the judgements are as they were.`)), ...offer];
    return offer;
  }

  ready(update) {
    const metrics = update.mrr_before !== null && update.mrr_after !== null ? ` MRR ${short(update.mrr_before)} before, ${short(update.mrr_after)} after.` : "";
    const open = el("button", { type: "button", class: "main", onclick: () => this.open() }, `Open ${update.run}`);
    return el("div", {}, el("p", {}, `The updated run ${update.run} is ready: ${update.change}.${metrics}`),
      update.notes.length ? el("ul", {}, update.notes.map((text) => el("li", {}, text))) : null,
      el("p", {}, open), note("Opening it shows it to everyone who uses this server. Judgements stay where they are."));
  }

  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      try {
        const update = await api("review/update", { run: null }, this.signal);
        if (update.state === "running") this.show({ ...this.state, update });
        else await this.refresh();
      } catch (error) {
        if (error.name === "AbortError") return;
        say(error.message);
      }
      if (this.state.update.state === "running") this.watch();
    }, EVERY);
  }

  send(path) {
    return this.act(async () => {
      const update = await send(path, {}, this.signal);
      this.show({ ...this.state, update });
    });
  }

  open() {
    return this.act(async () => {
      await send("review/open", {}, this.signal);
      location.reload();
    });
  }
}
