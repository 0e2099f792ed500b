// The slider of lambda.
import { el, say, short } from "./dom.js";
import { replaceParam } from "./address.js";

export function slider(range, ask, draw) {
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
      replaceParam("lambda", v === Infinity ? "inf" : v.toPrecision(6));
      say(`Tokens at lambda ${label(v)}`);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  };
  input.addEventListener("input", () => change(value(+input.value)));
  const trained = range.trained === null ? Infinity : range.trained;
  const back = el("button", { type: "button", onclick: () => { input.value = position(range.trained); change(trained); } }, "As trained");
  return el("div", {}, el("div", { class: "slider" }, el("label", { for: "lambda" }, "Faithfulness λ ", output), input, back),
    el("p", { class: "soft", id: "lambda-help" }, range.largest_eigenvalue === null
      ? `At ∞ tokens equal the composed vectors: likeness alone counts. The smaller λ, the more it counts how true the fact would be; ${label(trained)} unless changed.`
      : `A small λ lets the network reshape tokens; at ∞ they equal the composed vectors. λ must exceed the largest eigenvalue of W, ${short(range.largest_eigenvalue)}; trained with ${label(trained)}.`));
}
