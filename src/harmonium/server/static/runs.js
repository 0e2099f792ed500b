// The runs that are served, and the choice of one.
import { el } from "./dom.js";
import { link, params } from "./address.js";
import { api } from "./api.js";

let known = null;
export async function runs(signal) {
  known = known || await api("runs", { run: null }, signal);
  return known;
}

// A choice in the header where there is more than one run; else its name.
export async function showRuns(container) {
  const list = await runs();
  document.getElementById("review-link").hidden = !list[0].is_reviewed;
  const current = () => list[Number(params().get("run") || 0)] || list[0];
  if (list.length === 1) {
    container.replaceChildren(list[0].name);
    return;
  }
  const select = el("select", { id: "run", "aria-label": "Run", onchange: () => {
    location.hash = link([...[...params()].filter(([name]) => name !== "run"), ["run", select.value]]);
  } }, list.map((run) => el("option", { value: run.number }, run.name)));
  select.value = current().number;
  addEventListener("hashchange", () => { select.value = current().number; });
  container.replaceChildren(select);
}
