// The explorer page: the address after # chooses a view, which is drawn into the page.
import { el, say } from "./dom.js";
import { entityLink, params } from "./address.js";
import { errorCard, useToken } from "./api.js";
import { nameField } from "./name_field.js";
import { showRuns } from "./runs.js";
import { ask } from "./view_ask.js";
import { browse } from "./view_browse.js";
import { compare } from "./view_compare.js";
import { entity } from "./view_entity.js";
import { fact } from "./view_fact.js";
import { home } from "./view_home.js";
import { map } from "./view_map.js";
import { review } from "./view_review.js";
import { run } from "./view_run.js";

const main = document.getElementById("main");
const views = new Map(Object.entries({ ask, browse, compare, entity, fact, map, review, run }));  // a name in the address is one of these

let current = null, moved = false;
async function show() {
  const values = params(), view = values.get("view");
  if (location.hash === "#main") return;
  if (current) current.abort();
  const request = (current = new AbortController());
  main.setAttribute("aria-busy", "true");
  let content;
  try {
    content = await (views.get(view) || home)(values, request.signal);
  } catch (error) {
    if (error.name === "AbortError" || request.signal.aborted) return;
    content = [el("h2", {}, "This cannot be shown"), errorCard(error)];
  }
  if (request.signal.aborted) return;
  main.replaceChildren(...content.filter(Boolean));
  main.setAttribute("aria-busy", "false");
  for (const anchor of document.querySelectorAll("nav a")) {
    const address = new URLSearchParams({ view: anchor.dataset.view });
    if (values.get("run")) address.set("run", values.get("run"));
    anchor.href = `#${address}`;
    if (anchor.dataset.view === view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  const start = document.getElementById("start");
  start.href = values.get("run") ? `#run=${encodeURIComponent(values.get("run"))}` : "#";
  const heading = main.querySelector("h2");
  document.title = `${heading ? heading.textContent : "Explorer"} · harmonium`;
  if (moved) { main.focus({ preventScroll: true }); scrollTo(0, 0); }
  moved = true;
}

const store = { get: (k) => { try { return sessionStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { sessionStorage.setItem(k, v); } catch { /* private mode */ } } };
const toggle = document.getElementById("theme");
function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  const dark = name ? name === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  toggle.setAttribute("aria-pressed", String(dark));
}
toggle.addEventListener("click", () => {
  const next = toggle.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  store.set("theme", next);
  theme(next);
});
theme(store.get("theme"));

const given = params(), secret = given.get("token");
if (secret) {
  given.delete("token");
  store.set("token", secret);
  history.replaceState(null, "", location.pathname + (given.size ? `#${given}` : ""));
}
useToken(store.get("token"));
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
const search = nameField("Find an entity", "entity", (chosen) => { location.hash = entityLink(chosen); });
document.getElementById("entity-search").append(search.node);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); search.input.focus(); }
});
addEventListener("hashchange", show);
showRuns(document.getElementById("run-name")).catch((error) => say(error.message));
show();
