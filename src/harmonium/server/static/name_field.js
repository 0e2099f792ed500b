// A text field that suggests names.
import { el, say, whole } from "./dom.js";
import { api } from "./api.js";

let fields = 0;
export function nameField(label, kind, choose, value) {
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
  const suggest = async () => {
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
    wait = setTimeout(suggest, 120);
  });
  input.addEventListener("blur", () => { clearTimeout(wait); if (request) request.abort(); close(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) suggest();
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
