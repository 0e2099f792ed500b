// The run: its graph, its model, its metrics; and the other runs.
import { card, el, note, say, short, table, tags, whole } from "./dom.js";
import { link, relationLink } from "./address.js";
import { api } from "./api.js";
import { runs } from "./runs.js";

const METRICS = ["mrr", "hits@1", "hits@3", "hits@10", "mr"];

export async function run(values, signal) {
  const [info, list] = await Promise.all([api("info", {}, signal), runs(signal)]), graph = info.graph, trained = info.run;
  const metrics = trained.metrics.metrics, number = Number(values.get("run") || 0);
  const lambda = info.lambda ? [["lambda", info.lambda.trained === null ? "∞" : String(info.lambda.trained)], ["largest eigenvalue of W", short(info.lambda.largest_eigenvalue)]] : [];
  say(`Run ${info.name}`);
  return [
    el("p", { class: "crumbs" }, "This run"), el("h2", {}, info.name),
    list.length > 1 ? card("Runs", table("The runs that are served", ["run", "graph", "composition", "entities", "facts"], list.map((each) => [
      each.number === number ? el("strong", {}, each.name) : el("a", { href: link({ view: "run", run: each.number }) }, each.name), each.graph, each.composition, whole(each.entities), whole(each.facts)]), [3, 4])) : null,
    el("div", { class: "columns" },
      card("Graph", tags([["entities", whole(graph.entities)], ["relations", whole(graph.relations)], ...Object.entries(graph.triples).map(([k, v]) => [k, whole(v)]), ...(graph.rejected ? [["recorded as false", whole(graph.rejected)]] : [])])),
      card("Model", tags([["composition", trained.settings.model.composition], ["dimensions", whole(trained.settings.model.entity_dim)], ["parameters", whole(trained.parameters)],
        ...lambda, ["epochs", String(trained.epochs)], ["trained", `${trained.seconds.toFixed(0)} s`]]))),
    metrics ? card("Link prediction", tags(METRICS.map((k) => [k, short(metrics[k])])), note(`Protocol: ${info.protocol}.`)) : null,
    trained.updates.length ? card("Updates since the training", table("The oldest first; each can be undone by `harmonium update RUN --undo`", ["made", "change", "mrr before", "command"], trained.updates.map((each) => [
      each.made.replace("T", " ").slice(0, 16), each.change, each.metrics_before.mrr === undefined ? "" : short(each.metrics_before.mrr), each.command]), [2])) : null,
    card("Relations", table("Relations, those with most training facts first", ["relation", "train", "category", "example"], graph.by_relation.slice(0, 100).map((r) => [
      el("a", { href: relationLink({ id: r.name }) }, r.name), whole(r.train), r.category, (r.example || []).join(" · ")]), [1])),
    note("The API is described at ", el("a", { href: "api/v1/openapi.json" }, "/api/v1/openapi.json"), "."),
  ];
}
