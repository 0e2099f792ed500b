// Requests to the JSON API.
import { card, el, say } from "./dom.js";
import { link, params } from "./address.js";

const PATIENCE = 40000;  // milliseconds: how long a busy server is asked again, when it says to
let token = null;
export const useToken = (value) => (token = value);

export class Problem extends Error {
  constructor(message, suggestions, unknown) {
    super(message);
    this.suggestions = suggestions;
    this.unknown = unknown;
  }
}

export function api(path, values, signal) {
  const asked = { run: params().get("run"), ...values };
  const given = Object.entries(asked).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return request(`${path}?${new URLSearchParams(given)}`, {}, signal);
}

// A request that changes something; its values go as JSON.
export function send(path, values, signal) {
  return request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values) }, signal);
}

async function request(address, options, signal) {
  let response, body;
  try {
    const end = Date.now() + PATIENCE;
    for (;;) {
      const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
      response = await fetch(`api/v1/${address}`, { ...options, headers, signal });
      body = await response.json();
      const pause = 1000 * Number(response.headers.get("Retry-After") ?? 2);
      if (response.status !== 503 || Date.now() + pause > end) break;
      await new Promise((wake) => setTimeout(wake, pause));
      if (signal) signal.throwIfAborted();
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer. Is `harmonium serve` still running?", []);
  }
  if (!response.ok) throw new Problem(body.error, body.suggestions || [], body.unknown);
  return body;
}

export function errorCard(error) {
  const instead = (item) => link([...params()].map(([key, value]) => [key, value === error.unknown ? item.id : value]));
  const suggestions = (error.suggestions || []).map((item) => el("li", {}, el("a", { href: instead(item) }, item.name)));
  say(error.message);
  return el("section", { class: "card problem", role: "alert" }, el("h3", {}, "Error"), el("p", {}, error.message),
    suggestions.length ? el("div", {}, el("p", {}, "Did you mean:"), el("ul", { class: "chips" }, suggestions)) : null);
}

// A card whose content comes later: what `ask` promises, drawn by `draw`, or its error.
export function later(title, waiting, promise, draw) {
  const content = el("div", {}, el("p", { class: "soft" }, waiting)), node = card(title, content);
  promise.then((result) => content.replaceChildren(...[draw(result)].flat().filter(Boolean)))
    .catch((error) => { if (error.name !== "AbortError") content.replaceChildren(errorCard(error)); });
  return node;
}
