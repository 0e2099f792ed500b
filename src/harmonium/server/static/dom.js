// Elements and words. Names from the graph become text nodes only.

function make(space, tag, properties, children) {
  const node = space ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
export const el = (tag, properties, ...children) => make(false, tag, properties, children);
export const svg = (tag, properties, ...children) => make(true, tag, properties, children);
export const card = (title, ...children) => el("section", { class: "card" }, el("h3", {}, title), ...children);
export const note = (...children) => el("p", { class: "soft" }, ...children);
export const folded = (title, ...children) => el("details", {}, el("summary", {}, title), ...children);
export const say = (text) => (document.getElementById("status").textContent = text);

export const percent = (p) => (p >= 0.995 ? ">99 %" : p < 0.01 ? "<1 %" : `${Math.round(100 * p)} %`);
export const short = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : x.toPrecision(3));
export const whole = (n) => n.toLocaleString("en");
export const count = (n, one, many) => `${whole(n)} ${n === 1 ? one : many || one + "s"}`;

// A table that scrolls by itself where the screen is too narrow; rows are lists of cells, the columns named in `numbers` are right-aligned.
export function table(caption, heads, rows, numbers = []) {
  const label = (i) => (typeof heads[i] === "string" ? heads[i] : null);
  const cell = (tag, content, i) => el(tag, { class: numbers.includes(i) ? "number" : "", ...(tag === "th" ? { scope: "col" } : { "data-label": label(i) }) }, content);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", { class: heads.length > 4 ? "many" : "" }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, heads.map((head, i) => cell("th", head, i)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((content, i) => cell("td", content, i)))))));
}

export function tags(pairs) {
  return el("dl", { class: "tags" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
