/**
 * The bar above the views: window, pause, search and filters.
 *
 * @module
 */

import { make, part } from "../elements.js";
import { FILTERS, GROUPS, WINDOWS, figures } from "./address.js";
import { NAMES } from "./overview.js";
import { clock } from "./figures.js";
import { choices } from "./components.js";

/** @typedef {import("./address.js").View} View */
/** @typedef {import("./address.js").Filter} Filter */

const OUTCOMES = ["completed", "interrupted", "failed", "abandoned"];

/** @param {number} at_ms Unix @returns {string} the value of a `datetime-local` field, in the page's time zone */
function local(at_ms) {
  return new Date(at_ms - 60_000 * new Date(at_ms).getTimezoneOffset()).toISOString().slice(0, 16);
}

export class Filters {
  /**
   * @param {import("./sign_in.js").OperatorKey} operator
   * @param {() => View} view
   * @param {(changes: Partial<View>) => void} go
   */
  constructor(operator, view, go) {
    this.operator = operator;
    this.view = view;
    this.go = go;
    this.panel = part("filters", HTMLElement);
    this.button = part("open-filters", HTMLButtonElement);
    this.hold = part("hold", HTMLButtonElement);
    this.text = part("text", HTMLInputElement);
    this.seesAll = false;
    this.button.onclick = () => void this.toggle();
    this.hold.onclick = () => go({ at_ms: view().at_ms === null ? Date.now() : null, since_ms: null });
    part("search", HTMLFormElement).onsubmit = (event) => event.preventDefault();
    this.text.onchange = () => this.set("text", this.text.value.trim());
    this.text.addEventListener("search", () => this.set("text", this.text.value.trim())); // also when it is emptied
  }

  /**
   * @param {Filter} name
   * @param {string} value empty: no filter
   */
  set(name, value) {
    const { [name]: before, ...others } = this.view().filters;
    if ((before ?? "") !== value) this.go({ filters: value ? { ...others, [name]: value } : others });
  }

  /** Show the view's filters. */
  show() {
    const view = this.view();
    const windows = part("windows", HTMLFieldSetElement);
    const chosen = windows.querySelector("input:checked");
    const now = view.since_ms === null ? view.window : "";
    if ((chosen instanceof HTMLInputElement ? chosen.value : "") !== now || !windows.querySelector("input")) {
      const names = Object.fromEntries(
        Object.keys(WINDOWS).map((name) => [name, NAMES[/** @type {import("./address.js").Window} */ (name)]]),
      );
      const focused = windows.contains(document.activeElement);
      const legend = windows.querySelector("legend");
      windows.replaceChildren(
        ...(legend ? [legend] : []),
        ...choices("window", names, now, (window) => this.go({ window, ...(view.since_ms && { since_ms: null, at_ms: null }) })),
      );
      if (focused && now) part(`window-${now}`, HTMLInputElement).focus();
    }
    const held = view.at_ms !== null;
    this.hold.setAttribute("aria-pressed", String(held));
    this.hold.textContent = held
      ? `Paused at ${new Date(view.at_ms ?? 0).toLocaleTimeString([], { hourCycle: "h23" })}`
      : "Pause";
    if (document.activeElement !== this.text) this.text.value = view.filters.text ?? "";
    part("chips", HTMLUListElement).replaceChildren(...this.chips(view));
    for (const field of this.panel.querySelectorAll("select, input")) {
      if (field instanceof HTMLSelectElement || field instanceof HTMLInputElement) {
        field.value = view.filters[/** @type {Filter} */ (field.name)] ?? "";
      }
    }
  }

  /** @param {View} view */
  chips(view) {
    /** @type {[string, string, () => void][]} */
    const on = Object.entries(view.filters).map(([name, value]) => {
      const filter = /** @type {Filter} */ (name);
      return [FILTERS[filter], value, () => this.set(filter, "")];
    });
    if (view.since_ms !== null && view.at_ms !== null) {
      const [since, until] = [view.since_ms, view.at_ms].map((at) => clock(at, Date.now()));
      on.push(["Span", `${since} to ${until}`, () => this.go({ since_ms: null, at_ms: null })]);
    }
    if (view.session) on.push(["Session", view.session, () => this.go({ session: "" })]);
    if (view.node) on.push(["Node", view.node, () => this.go({ node: "" })]);
    if (view.over) on.push(["Only", "over the limit", () => this.go({ over: false })]);
    return on.map(([name, value, off]) => {
      const button = make("button", {
        type: "button",
        class: "chip",
        "aria-label": `Leave out the filter ${name}: ${value}`,
      });
      button.append(`${name}: ${value} `, make("span", { "aria-hidden": "true" }, "×"));
      button.onclick = off;
      return make("li", {}, button);
    });
  }

  async toggle() {
    this.panel.hidden = !this.panel.hidden;
    this.button.setAttribute("aria-expanded", String(!this.panel.hidden));
    if (this.panel.hidden) return;
    const found = await Promise.all(GROUPS.map((by) => this.values(by)));
    const fields = GROUPS.map((by, i) => this.select(by, found[i]));
    this.panel.replaceChildren(...fields, ...(this.seesAll ? [this.project()] : []), ...this.span());
    this.show();
    this.panel.querySelector("select")?.focus();
  }

  /** @param {import("./address.js").Group} by */
  async values(by) {
    if (by === "outcome") return OUTCOMES;
    const unfiltered = { ...this.view(), filters: {} };
    const answer = await this.operator.fetch(figures(unfiltered, "24h", { by }));
    const chosen = this.view().filters[by];
    const names = answer.ok ? answer.data.groups.map((/** @type {any} */ { name }) => name).filter(Boolean) : [];
    return [...new Set([...names, ...(chosen ? [chosen] : [])])].toSorted();
  }

  /**
   * @param {Filter} name
   * @param {string[]} values
   */
  select(name, values) {
    const id = `filter-${name}`;
    const field = make(
      "select",
      { id, name },
      new Option("all", ""),
      ...values.map((value) => new Option(value, value)),
    );
    field.onchange = () => this.set(name, field.value);
    return make("div", {}, make("label", { for: id }, FILTERS[name]), field);
  }

  /** Return the two fields of a free span; the view changes once both are filled in. */
  span() {
    const { at_ms, since_ms } = this.view();
    const from = make("input", { id: "span-from", type: "datetime-local" });
    const to = make("input", { id: "span-to", type: "datetime-local" });
    if (since_ms !== null && at_ms !== null) [from.value, to.value] = [local(since_ms), local(at_ms)];
    from.onchange = to.onchange = () => this.setSpan(from.value, to.value);
    return [
      make("div", {}, make("label", { for: "span-from" }, "From"), from),
      make("div", {}, make("label", { for: "span-to" }, "To"), to),
    ];
  }

  /**
   * @param {string} from
   * @param {string} to
   */
  setSpan(from, to) {
    const [since_ms, at_ms] = [Date.parse(from), Date.parse(to)];
    if (since_ms < at_ms) this.go({ since_ms, at_ms });
  }

  project() {
    const field = make("input", {
      id: "filter-project",
      name: "project",
      type: "text",
      autocomplete: "off",
      placeholder: "all",
    });
    field.onchange = () => this.set("project", field.value.trim());
    return make("div", {}, make("label", { for: "filter-project" }, FILTERS.project), field);
  }
}
