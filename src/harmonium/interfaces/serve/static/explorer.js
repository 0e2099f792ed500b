// The explorer page. Names from the graph become text nodes only; the address after # says what is shown.
"use strict";

const main = document.getElementById("main");
const params = () => new URLSearchParams(location.hash.slice(1));
const link = (values) => "#" + new URLSearchParams(values);
const entityLink = (entity) => link({ view: "entity", name: entity.id });
const factLink = (fact, slot) =>
  link({ view: "fact", head: fact.head.id, relation: fact.relation.id, tail: fact.tail.id, slot: slot || "head" });
const percent = (p) => (p >= 0.995 ? ">99 %" : p < 0.01 ? "<1 %" : `${Math.round(100 * p)} %`);
const short = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : x.toPrecision(3));
const whole = (n) => n.toLocaleString("en");

// Elements -----------------------------------------------------------------------------------------------------------

function make(space, tag, properties, children) {
  const node = space ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, properties, ...children) => make(false, tag, properties, children);
const svg = (tag, properties, ...children) => make(true, tag, properties, children);
const card = (title, ...children) => el("section", { class: "card" }, el("h3", {}, title), ...children);
const say = (text) => (document.getElementById("status").textContent = text);

// The API ------------------------------------------------------------------------------------------------------------

const PATIENCE = 15000;  // milliseconds: how long a busy server is asked again, when it says to
let token = null;
class Problem extends Error {
  constructor(message, suggestions, unknown) {
    super(message);
    this.suggestions = suggestions;
    this.unknown = unknown;
  }
}
async function api(path, values, signal) {
  const given = Object.entries(values || {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  let response, body;
  try {
    const end = Date.now() + PATIENCE;
    for (;;) {
      response = await fetch(`api/v1/${path}?${new URLSearchParams(given)}`, {
        headers: token ? { Authorization: `Bearer ${token}` } : {}, signal,
      });
      body = await response.json();
      const pause = 1000 * Number(response.headers.get("Retry-After"));
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

// A text field that suggests names -----------------------------------------------------------------------------------

let fields = 0;
function nameField(label, kind, choose, value) {
  const id = `field-${fields++}`;
  const list = el("ul", { id: `${id}-list`, role: "listbox", "aria-label": `${label}: suggestions`, hidden: true });
  const input = el("input", {
    id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list",
    "aria-expanded": "false", "aria-controls": `${id}-list`, maxlength: 200,
    placeholder: kind === "entity" ? "Type a name" : "Type a relation",
  });
  let matches = [], active = -1, wait = 0, request = null;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  };
  const pick = (item) => {
    clearTimeout(wait);
    if (request) request.abort();
    input.value = item.name;
    input.dataset.id = item.id;
    close();
    choose(item);
  };
  const mark = (index) => {
    active = index;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", i === active));
    if (active < 0) return;
    input.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  };
  const look = async () => {
    if (request) request.abort();
    request = new AbortController();
    try {
      matches = await api("search", { q: input.value, kind, limit: 8 }, request.signal);
    } catch (error) {
      return;
    }
    list.replaceChildren(...matches.map((item, i) =>
      el("li", {
        id: `${id}-${i}`, role: "option", "aria-selected": "false",
        onmousedown: (event) => { event.preventDefault(); pick(item); },
      }, el("span", {}, item.name), el("small", {}, `${whole(item.facts)} facts`))));
    list.hidden = !matches.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    active = -1;
    say(matches.length ? `${matches.length} suggestions` : "No similar name");
  };
  input.addEventListener("input", () => {
    delete input.dataset.id;
    clearTimeout(wait);
    wait = setTimeout(look, 120);
  });
  input.addEventListener("blur", () => { clearTimeout(wait); close(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) look();
      else mark((active + (event.key === "ArrowDown" ? 1 : matches.length - (active < 0 ? 0 : 1))) % matches.length);
    } else if (event.key === "Enter" && (active >= 0 || input.value.trim())) {
      event.preventDefault();
      pick(active >= 0 ? matches[active] : { id: input.dataset.id || input.value.trim(), name: input.value.trim() });
    } else if (event.key === "Escape") close();
  });
  if (value) { input.value = value.name; input.dataset.id = value.id; }
  const node = el("div", { class: "field" }, el("label", { for: id }, label), el("div", { class: "box" }, input, list));
  return { node, input, given: () => input.dataset.id || input.value.trim() };
}

// Parts of views -----------------------------------------------------------------------------------------------------

function chance(fact) {
  if (fact.split) return el("span", { class: "chance" }, `known (${fact.split})`);
  if (fact.probability === null) return el("span", { class: "chance" }, short(fact.score));
  return el("span", { class: "chance", title: `score ${short(fact.score)}` },
    el("meter", { min: 0, max: 1, value: fact.probability, "aria-hidden": "true" }), percent(fact.probability));
}
const splitMark = (split) => (split && split !== "train" ? el("span", { class: "split", title: `held out: ${split}` }, split) : null);
const named = (item, current) => (current && item.id === current ? el("span", {}, item.name) : el("a", { href: entityLink(item) }, item.name));

function factTable(caption, facts, current) {
  const rows = facts.map((fact) => el("tr", {},
    el("td", {}, named(fact.head, current), " ", el("span", { class: "soft" }, fact.relation.name), " ", named(fact.tail, current)),
    el("td", {}, chance(fact)),
    el("td", { class: "number" }, el("a", {
      href: factLink(fact, fact.open === "head" ? "tail" : "head"), "aria-label": `Why: ${fact.head.name}, ${fact.relation.name}, ${fact.tail.name}`,
    }, "why"))));
  const last = facts.length && facts[0].probability === null ? "score" : "probability";
  return el("div", { class: "scroll" }, el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "fact"), el("th", { scope: "col" }, last), el("th", { scope: "col" }, el("span", { class: "unseen" }, "explanation")))),
    el("tbody", {}, rows)));
}

function groupFacts(entity, facts) {
  const groups = new Map();
  for (const fact of facts) {
    const isHead = fact.head.id === entity.id;
    const key = `${isHead} ${fact.relation.id}`;
    if (!groups.has(key)) groups.set(key, { title: isHead ? `${fact.relation.name} →` : `← ${fact.relation.name}`, items: [] });
    const other = isHead ? fact.tail : fact.head;
    groups.get(key).items.push(el("li", {}, el("a", { href: entityLink(other) }, other.name), splitMark(fact.split), " ",
      el("a", { href: factLink(fact, isHead ? "head" : "tail"), class: "soft", "aria-label": `Details: ${fact.head.name}, ${fact.relation.name}, ${fact.tail.name}` }, "details")));
  }
  return [...groups.values()].map((group) => el("div", { class: "group" }, el("h4", {}, group.title), el("ul", { class: "chips" }, group.items)));
}

const SIDE = 420, WIDE = [640, 380];
function scale(points, [width, height], margin) {  // into a picture, both axes alike, in the middle
  const low = [0, 1].map((i) => Math.min(...points.map((p) => p[i]))), high = [0, 1].map((i) => Math.max(...points.map((p) => p[i])));
  const room = [width - 2 * margin, height - 2 * margin];
  const unit = Math.min(...[0, 1].map((i) => room[i] / (high[i] - low[i] || 1e-9)));
  return (p) => [0, 1].map((i) => margin + room[i] / 2 + (p[i] - (low[i] + high[i]) / 2) * unit);
}

class Plot {  // one map of a guise; circles stay, so that they glide when lambda changes
  constructor(label) {
    this.circles = new Map();
    this.labels = svg("g", {});
    this.dots = svg("g", {});
    this.node = svg("svg", { class: "plot", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": label }, this.dots, this.labels);
  }
  draw(points, side, nearest) {
    const position = scale(points.map((point) => point[side]), [SIDE, SIDE], 34), marks = [];
    const rank = new Map(nearest.map((n, i) => [n.id, i + 1]));
    const sorted = [...points].sort((a, b) => a.selected - b.selected || a.true - b.true);
    for (const point of sorted) {
      const [x, y] = position(point[side]);
      let circle = this.circles.get(point.id);
      if (!circle) {
        circle = svg("circle", { onclick: () => (location.hash = entityLink(point)) }, svg("title", {}, point.name));
        this.circles.set(point.id, circle);
        this.dots.append(circle);
      }
      circle.setAttribute("class", point.selected ? "is-self" : point.true ? "is-true" : "");
      circle.setAttribute("r", point.selected ? 7 : point.true ? 4.5 : 3);
      circle.setAttribute("cx", x);
      circle.setAttribute("cy", y);
      if (point.selected || rank.has(point.id)) marks.push([x, y, point, rank.get(point.id)]);
    }
    const shown = new Set(points.map((point) => point.id));
    for (const [id, circle] of this.circles) if (!shown.has(id)) { circle.remove(); this.circles.delete(id); }
    this.labels.replaceChildren(...marks.map(([x, y, point, number]) => {
      const left = x > SIDE * 0.62;
      return svg("text", { x: x + (left ? -9 : 9), y: y + 4, "text-anchor": left ? "end" : "start",
        class: point.selected ? "is-self" : point.true ? "is-true" : "" }, point.selected ? point.name : String(number));
    }));
  }
}

function nearList(neighbours) {
  return el("ol", { class: "near" }, neighbours.map((n) => el("li", { class: n.true ? "true" : "" },
    el("span", {}, el("a", { href: entityLink(n) }, n.name), n.true ? " ✓" : "", n.true ? el("span", { class: "unseen" }, "true") : null),
    el("small", {}, `${n.distance.toFixed(3)} · #${whole(n.rank)}`))));
}

// Views --------------------------------------------------------------------------------------------------------------

const views = {
  __proto__: null,  // a name in the address is one of these views, and nothing that objects inherit
  async entity(values, signal) {
    const name = values.get("name"), later = api("predictions", { entity: name }, signal);
    later.catch(() => {});
    const page = await api("facts", { entity: name }, signal);
    const list = el("div", {}, groupFacts(page.entity, page.facts));
    let shown = [...page.facts];
    const more = el("button", { type: "button", hidden: shown.length >= page.total, onclick: async () => {
      const next = await api("facts", { entity: name, offset: shown.length, limit: 200 });
      shown = [...shown, ...next.facts];
      list.replaceChildren(...groupFacts(page.entity, shown));
      more.hidden = shown.length >= page.total;
      say(`${whole(shown.length)} of ${whole(page.total)} facts`);
    } }, "More facts");
    const predicted = card("Predicted facts", el("p", { class: "soft" }, "Asking the model…"));
    later.then((predictions) => {
      const note = `${predictions.queries} queries: one for each relation and side that this entity could have`;
      predicted.lastChild.replaceWith(predictions.facts.length ? factTable(note, predictions.facts, page.entity.id)
        : el("p", { class: "soft" }, "No prediction: the graph has too few facts about this entity."));
      say(`${predictions.facts.length} predicted facts of ${page.entity.name}`);
    }).catch((error) => { if (error.name !== "AbortError") predicted.lastChild.replaceWith(errorCard(error)); });
    say(`${page.entity.name}: ${whole(page.total)} facts`);
    return [
      el("p", { class: "crumbs" }, "Entity"), el("h2", {}, page.entity.name),
      page.entity.id === page.entity.name ? null : el("p", { class: "soft" }, page.entity.id),
      el("p", {}, el("a", { href: link({ view: "map", name: page.entity.id }) }, "On the map")),
      el("div", { class: "columns" },
        predicted,
        card(`Known facts (${whole(page.total)})`, list, more)),
    ];
  },

  async fact(values, signal) {
    const triple = { head: values.get("head"), relation: values.get("relation"), tail: values.get("tail") };
    const slot = values.get("slot") === "tail" ? "tail" : "head";
    const ask = (faithfulness, s) => api("neighbours", { ...triple, slot, lambda: faithfulness }, s);
    const first = await ask(values.get("lambda"), signal);
    const fact = first.fact, range = first.faithfulness, entity = fact[slot];
    const plots = { composed: new Plot(`Map by composed vectors around ${entity.name}`), token: new Plot(`Map by tokens around ${entity.name}`) };
    const lists = { composed: el("div", {}), token: el("div", {}) };
    const draw = (view) => {
      for (const side of range ? ["composed", "token"] : ["composed"]) {
        plots[side].draw(view.points, side, view[side]);
        lists[side].replaceChildren(nearList(view[side]));
      }
    };
    draw(first);
    const side = (name, title) => el("div", {}, el("h4", {}, title), plots[name].node, lists[name]);
    const turn = el("a", { href: link({ view: "fact", ...triple, slot: slot === "head" ? "tail" : "head" }) },
      `Show ${fact[slot === "head" ? "tail" : "head"].name} instead`);
    const why = el("div", {}, el("button", { type: "button", onclick: () => explain(triple, why) }, "Explain this fact"));
    say(`${fact.head.name}, ${fact.relation.name}, ${fact.tail.name}: rank ${whole(first.rank)}`);
    if (values.get("why")) explain(triple, why);
    return [
      el("p", { class: "crumbs" }, fact.split ? `Fact (${fact.split})` : "Not a known fact"),
      el("h2", {}, named(fact.head), " ", el("span", { class: "soft" }, fact.relation.name), " ", named(fact.tail)),
      el("p", { class: "soft" }, `Rank of ${entity.name} among the answers for the ${slot}: ${whole(first.rank)}. `, turn),
      card(`Entities most similar to ${entity.name} in this fact`,
        el("p", { class: "soft" }, `Other entities in place of the ${slot}: the ${whole(first.candidates)} seen in that slot of the relation. Green: also a known fact. Numbers mark the nearest; # is the rank as an answer.`),
        range ? slider(range, ask, draw) : el("p", { class: "soft" }, "A plain model has no tokens, and no lambda."),
        el("div", { class: "columns" }, side("composed", "By composed vector"), range ? side("token", "By token") : null)),
      card("Why", why),
    ];
  },

  async ask(values, signal) {
    const given = ["head", "relation", "tail"].map((slot) => values.get(slot));
    const go = () => {
      const filled = Object.fromEntries(Object.entries(boxes).map(([slot, box]) => [slot, box.given()]).filter(([, text]) => text));
      location.hash = link({ view: "ask", ...filled, ...(fresh.checked ? { new: 1 } : {}) });
    };
    const boxes = {}, fresh = el("input", { type: "checkbox", id: "fresh" });
    fresh.checked = values.has("new");
    ["head", "relation", "tail"].forEach((slot, i) => {
      boxes[slot] = nameField(slot[0].toUpperCase() + slot.slice(1), slot === "relation" ? "relation" : "entity", () => {}, given[i] && { id: given[i], name: given[i] });
    });
    const form = el("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); go(); } },
      Object.values(boxes).map((box) => box.node), el("button", { type: "submit" }, "Ask"),
      el("label", {}, fresh, " only new facts"));
    const top = [el("p", { class: "crumbs" }, "Ask"), el("h2", {}, "What is missing?"), el("p", { class: "soft" }, "Fill two of the three; the model answers the third."), form];
    if (given.filter(Boolean).length !== 2) {
      if (given.some(Boolean)) top.push(errorCard(new Problem("Fill exactly two of head, relation and tail.", [])));
      return top;
    }
    try {
      const result = await api("answers", { head: given[0], relation: given[1], tail: given[2], limit: 20, new_only: values.has("new") }, signal);
      say(`${result.answers.length} answers to ${result.query}`);
      for (const [slot, box] of Object.entries(boxes)) if (slot !== result.open && result.answers.length) box.input.value = result.answers[0][slot].name;
      top.push(card(result.query, factTable("best answers first; known facts with their split", result.answers)));
    } catch (error) {
      if (error.name === "AbortError") throw error;
      top.push(errorCard(error));
    }
    return top;
  },

  async map(values, signal) {
    const chosen = values.get("name"), map = await api("map", { limit: 1000, entity: chosen }, signal);
    const name = chosen && map.points[map.points.length - 1].name;
    let zoom = chosen ? 2.56 : 1;
    const position = scale(map.points.map((p) => [p.x, -p.y]), WIDE, 14);
    const spots = map.points.map((p) => ({ p, xy: position([p.x, -p.y]), selected: p.id === chosen }));
    const self = spots.find((spot) => spot.selected);
    const node = svg("svg", { class: "plot map", role: "img", "aria-label": `Map of ${whole(spots.length)} entities` });
    const draw = () => {
      const size = WIDE.map((side) => side / zoom);
      const start = [0, 1].map((i) => Math.max(0, Math.min(WIDE[i] - size[i], (self ? self.xy[i] : WIDE[i] / 2) - size[i] / 2)));
      node.setAttribute("viewBox", [...start, ...size].join(" "));
      const inside = spots.filter(({ xy }) => [0, 1].every((i) => xy[i] >= start[i] && xy[i] <= start[i] + size[i]));
      const dots = inside.map(({ p, xy, selected }) => svg("circle", {
        cx: xy[0], cy: xy[1], r: (selected ? 5.5 : 2.2) / zoom ** 0.7, class: selected ? "is-self" : `role-${p.role === map.roles.length - 1 ? 7 : p.role}`,
        onclick: () => (location.hash = entityLink(p)),
      }, svg("title", {}, p.name)));
      const taken = [], labels = [], unit = 8.5 / zoom, gap = 3.5 / zoom ** 0.7;
      for (const { p, xy, selected } of [...inside].sort((a, b) => b.selected - a.selected)) {
        const box = [xy[0] + gap * (selected ? 2 : 1), xy[1], p.name.length * unit * (selected ? 0.75 : 0.56), unit * 1.6];
        const hidden = taken.some((t) => Math.abs(t[1] - box[1]) < (t[3] + box[3]) / 2 && box[0] < t[0] + t[2] && t[0] < box[0] + box[2]);
        if (labels.length > 60 || p.name.length > 30 || hidden || box[0] + box[2] > start[0] + size[0]) continue;
        taken.push(box);
        const text = svg("text", { x: box[0], y: xy[1] + unit * 0.35, class: selected ? "is-self" : "" }, p.name);
        text.style.fontSize = `${selected ? unit * 1.3 : unit}px`;
        text.style.strokeWidth = `${unit / 4}px`;
        labels.push(text);
      }
      node.replaceChildren(...dots, ...labels);
    };
    draw();
    const zoomBy = (factor) => () => { zoom = Math.max(1, Math.min(12, zoom * factor)); draw(); };
    say(`Map of ${whole(spots.length)} entities`);
    return [
      el("p", { class: "crumbs" }, "Map"), el("h2", {}, name ? `Around ${name}` : "All entities"),
      el("p", { class: "soft" }, `The ${whole(spots.length)} most connected entities along the two principal axes of the entity vectors (${Math.round(100 * map.share)} % of their variance). Colour: the most frequent role of an entity.`),
      el("div", { class: "tools" },
        el("button", { type: "button", onclick: zoomBy(1.6) }, "Zoom in"), el("button", { type: "button", onclick: zoomBy(1 / 1.6) }, "Zoom out"),
        name ? el("a", { href: link({ view: "entity", name: chosen }) }, `Facts of ${name}`) : null),
      node,
      el("ul", { class: "legend" }, map.roles.map((role, i) => el("li", {},
        svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("circle", { cx: 5, cy: 5, r: 5, class: `role-${i === map.roles.length - 1 ? 7 : i}` })), role))),
    ];
  },

  async run(values, signal) {
    const info = await api("info", {}, signal), graph = info.graph, run = info.run;
    const tags = (pairs) => el("dl", { class: "tags" }, pairs.map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))));
    const metrics = run.metrics.metrics;
    say(`Run ${info.name}`);
    return [
      el("p", { class: "crumbs" }, "This run"), el("h2", {}, info.name),
      el("div", { class: "columns" },
        card("Graph", tags([["entities", whole(graph.entities)], ["relations", whole(graph.relations)], ...Object.entries(graph.triples).map(([k, v]) => [k, whole(v)])])),
        card("Model", tags([["composition", run.settings.model.composition], ["dimensions", whole(run.settings.model.entity_dim)], ["parameters", whole(run.parameters)],
          ...(info.lambda ? [["lambda", info.lambda.trained === null ? "∞" : String(info.lambda.trained)], ["largest eigenvalue of W", short(info.lambda.largest_eigenvalue)]] : []),
          ["epochs", String(run.epochs)], ["trained", `${run.seconds.toFixed(0)} s`]]))),
      metrics ? card("Link prediction", tags(["mrr", "hits@1", "hits@3", "hits@10", "mr"].map((k) => [k, short(metrics[k])])),
        el("p", { class: "soft" }, `Protocol: ${info.protocol}.`)) : null,
      card("Relations", el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["relation", "train", "category", "example"].map((t) => el("th", { scope: "col", class: t === "train" ? "number" : "" }, t)))),
        el("tbody", {}, graph.by_relation.slice(0, 100).map((r) => el("tr", {}, el("td", {}, r.name), el("td", { class: "number" }, whole(r.train)), el("td", {}, r.category), el("td", {}, (r.example || []).join(" · ")))))))),
      el("p", { class: "soft" }, "The API is described at ", el("a", { href: "api/v1/openapi.json" }, "/api/v1/openapi.json"), "."),
    ];
  },

  async home() {
    const matches = await api("search", { limit: 24 });
    say("Type a name to begin");
    return [
      el("h2", {}, "Explore"),
      el("p", {}, "Type the name of an entity above, or start with one that has many facts."),
      card("Entities with most facts", el("ul", { class: "chips" }, matches.map((entity) => el("li", {}, el("a", { href: entityLink(entity) }, entity.name), " ", el("small", {}, whole(entity.facts)))))),
    ];
  },
};

function slider(range, ask, draw) {
  const top = 20 * (range.trained || Math.max(1, range.minimum)), steps = 200;
  const value = (step) => (step >= steps ? Infinity : range.minimum * (top / range.minimum) ** (step / (steps - 1)));
  const position = (v) => (v === null ? steps : Math.round((steps - 1) * Math.log(v / range.minimum) / Math.log(top / range.minimum)));
  const label = (v) => (v === Infinity ? "∞" : v.toPrecision(3));
  const output = el("output", { for: "lambda", "aria-live": "off" }, label(range.current === null ? Infinity : range.current));
  const input = el("input", { id: "lambda", type: "range", min: 0, max: steps, step: 1, "aria-describedby": "lambda-help" });
  input.value = position(range.current);
  let request = null;
  const change = async (v) => {
    output.textContent = label(v);
    input.setAttribute("aria-valuetext", `lambda ${label(v)}`);
    if (request) request.abort();
    request = new AbortController();
    try {
      draw(await ask(v === Infinity ? "inf" : v.toPrecision(6), request.signal));
      const now = params();
      now.set("lambda", v === Infinity ? "inf" : v.toPrecision(6));
      history.replaceState(null, "", "#" + now);
      say(`Tokens at lambda ${label(v)}`);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  };
  input.addEventListener("input", () => change(value(+input.value)));
  const trained = range.trained === null ? Infinity : range.trained;
  const back = el("button", { type: "button", onclick: () => { input.value = position(range.trained); change(trained); } }, "As trained");
  return el("div", {}, el("div", { class: "slider" }, el("label", { for: "lambda" }, "Faithfulness λ ", output), input, back),
    el("p", { class: "soft", id: "lambda-help" }, `A small λ lets the network reshape tokens; at ∞ they equal the composed vectors. λ must exceed the largest eigenvalue of W, ${short(range.largest_eigenvalue)}; trained with ${label(trained)}.`));
}

const STATES = new Map([["composed", "composed vector"], ["token", "token"], ["empty", "token of x = 0"]]);
async function explain(triple, container) {
  container.replaceChildren(el("p", { class: "soft" }, "Computing the explanation; on large graphs this takes a while…"));
  say("Computing the explanation");
  try {
    const explanation = await api("explain", triple);
    const rows = (items, cells) => el("tbody", {}, items.map((item) => el("tr", {}, cells(item).map(([text, number]) => el("td", { class: number ? "number" : "" }, text)))));
    const table = (caption, heads, body) => el("div", { class: "scroll" }, el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads.map((h, i) => el("th", { scope: "col", class: i ? "number" : "" }, h)))), body));
    const reason = (r) => [[r.fact.join(" · ")], [short(r.distance), true], [(r.effect > 0 ? "+" : "") + short(r.effect), true]];
    const parts = Object.entries(explanation.harmony);
    const score = `Score ${short(explanation.score)}; rank ${whole(explanation.rank.head)} as a head, ${whole(explanation.rank.tail)} as a tail.`;
    container.replaceChildren(
      el("p", {}, score, explanation.shift ? ` From composed vector to token its harmony rises by ${short(explanation.shift.gain)}; the shift has length ${short(explanation.shift.shared)} in common with all facts and ${short(explanation.shift.specific)} of its own.` : ""),
      ...explanation.notes.map((note) => el("p", { class: "soft" }, note)),
      parts.length ? table("Harmony = core harmony + faithfulness, at each state", ["state", "core", "faithfulness", "total"],
        rows(parts, ([name, p]) => [[STATES.get(name) || name], [short(p.core), true], [short(p.faithfulness), true], [short(p.total), true]])) : "",
      explanation.directions.length ? table("Directions of W with most effect on the score, with training facts far along them", ["examples", "contribution"],
        rows(explanation.directions, (d) => [[d.facts.slice(0, 2).map((f) => f.name.join(" · ")).join("; ")], [(d.contribution > 0 ? "+" : "") + short(d.contribution), true]])) : "",
      table("Nearest training facts; effect: estimated change of the score without them", ["fact", "distance", "effect"], rows(explanation.nearest, reason)),
      table("Most influential training facts: largest estimated change of the score without them", ["fact", "distance", "effect"], rows(explanation.reasons, reason)));
    const now = params();
    now.set("why", 1);
    history.replaceState(null, "", "#" + now);
    say("Explanation shown");
  } catch (error) {
    container.replaceChildren(errorCard(error));
  }
}

function errorCard(error) {
  const instead = (item) => link([...params()].map(([key, value]) => [key, value === error.unknown ? item.id : value]));
  const suggestions = (error.suggestions || []).map((item) => el("li", {}, el("a", { href: instead(item) }, item.name)));
  say(error.message);
  return el("section", { class: "card problem", role: "alert" }, el("h3", {}, "Error"), el("p", {}, error.message),
    suggestions.length ? el("div", {}, el("p", {}, "Did you mean:"), el("ul", { class: "chips" }, suggestions)) : null);
}

// The address, the theme, the start ----------------------------------------------------------------------------------

let current = null, moved = false;
async function show() {
  const values = params(), view = values.get("view");
  if (location.hash === "#main") return;
  if (current) current.abort();
  const request = (current = new AbortController());
  main.setAttribute("aria-busy", "true");
  let content;
  try {
    content = await (views[view] || views.home)(values, request.signal);
  } catch (error) {
    if (error.name === "AbortError" || request.signal.aborted) return;
    content = [errorCard(error)];
  }
  if (request.signal.aborted) return;
  main.replaceChildren(...content.filter(Boolean));
  main.setAttribute("aria-busy", "false");
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.dataset.view === view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
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

const secret = params().get("token");
if (secret) {
  store.set("token", secret);
  history.replaceState(null, "", location.pathname);
}
token = store.get("token");
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
const search = nameField("Find an entity", "entity", (entity) => { location.hash = entityLink(entity); });
document.getElementById("entity-search").append(search.node);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); search.input.focus(); }
});
addEventListener("hashchange", show);
api("info").then((info) => { document.getElementById("run-name").textContent = info.name; }).catch(() => {});
show();
