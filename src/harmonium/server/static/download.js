// Tables as files: CSV, TSV or JSON, made in the page from what it shows.
import { el, say } from "./dom.js";

const text = (cell) => (cell === null || cell === undefined ? "" : String(cell));
const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const FORMATS = [
  ["CSV", "text/csv", (rows, columns) => [columns, ...rows].map((row) => row.map((cell) => quoted(text(cell))).join(",") + "\n").join("")],
  ["TSV", "text/tab-separated-values", (rows, columns) => [columns, ...rows].map((row) => row.map((cell) => text(cell).replace(/[\t\r\n]+/g, " ")).join("\t") + "\n").join("")],
  ["JSON", "application/json", (rows, columns) => JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i]]))), null, 1) + "\n"],
];

function save(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const anchor = el("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export function downloads(title, columns, rows) {
  const file = title.normalize("NFKD").replace(/[^\w-]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 60) || "table";
  return el("p", { class: "downloads" }, el("span", { class: "soft" }, "Download: "), FORMATS.map(([format, type, write]) =>
    el("button", { type: "button", "aria-label": `Download as ${format}`, onclick: () => {
      const name = `${file}.${format.toLowerCase()}`;
      save(name, `${type};charset=utf-8`, write(rows, columns));
      say(`Saved ${name}`);
    } }, format)));
}

export const FACT_COLUMNS = ["head", "relation", "tail", "probability", "score", "known", "head_name", "relation_name", "tail_name", "reason"];
export const factRow = (fact) => [
  fact.head.id, fact.relation.id, fact.tail.id, fact.probability ?? null, fact.score ?? null, fact.split, fact.head.name, fact.relation.name, fact.tail.name, fact.reason ?? null,
];
