// The table of items: sorted by any column, in pages.

const PAGE = 100;
const MOST_PRINTED = 1000;
const MOST_IN_SET = 6;
const collator = new Intl.Collator(undefined, { numeric: true });

const SET_TITLE = `${Math.round(1000 * DATA.level) / 10}% set`;

const COLUMNS = [
  { key: "item", title: "Item", value: (item) => item.name },
  { key: "best", title: "Best label", value: (item) => stateName(item.best) },
  { key: "probability", title: "Probability", value: (item) => item.probability },
  { key: "runner", title: "Runner-up", value: (item) => item.second, falling: true },
  { key: "set", title: SET_TITLE, value: (item) => item.size, falling: true },
  { key: "unmatched", title: "Unmatched", value: (item) => item.unmatched, falling: true },
].filter((column) => column.key !== "unmatched" || DATA.rows_may_be_alone);

class ItemTable {
  constructor(place) {
    this.items = [];
    this.query = "";
    this.column = COLUMNS.find((column) => column.key === "probability");
    this.falling = false;
    this.page = 0;
    this.size = PAGE;
    this.body = element("tbody", { role: "rowgroup" });
    this.heads = COLUMNS.map((column) => this.head(column));
    const row = element("tr", { role: "row" }, ...this.heads);
    // Roles are explicit because on a phone the style sheet lays the table out as cards.
    place.append(
      element(
        "table",
        { class: "items", role: "table", "aria-labelledby": "items-title" },
        element("thead", { role: "rowgroup" }, row),
        this.body,
      ),
    );
    this.pages = document.getElementById("pages");
    document.getElementById("previous").addEventListener("click", () => this.turn(-1));
    document.getElementById("next").addEventListener("click", () => this.turn(1));
  }

  head(column) {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => this.sortBy(column));
    return element("th", { scope: "col", role: "columnheader", class: column.key }, button);
  }

  sortBy(column) {
    this.falling = column === this.column ? !this.falling : Boolean(column.falling);
    this.column = column;
    this.page = 0;
    this.render();
  }

  show(items, query) {
    this.items = items;
    this.query = query;
    this.page = 0;
    this.render();
  }

  turn(by) {
    this.page += by;
    this.render();
    document.getElementById("items-title").scrollIntoView();
  }

  // Print all items, since paper has no buttons to turn pages.
  printing(on) {
    this.size = on ? MOST_PRINTED : PAGE;
    this.render();
  }

  sorted() {
    const { value } = this.column;
    const sign = this.falling ? -1 : 1;
    const order = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
    return [...this.items].sort((a, b) => sign * order(value(a), value(b)) || a.row - b.row);
  }

  render() {
    COLUMNS.forEach((column, place) => {
      if (column !== this.column) this.heads[place].removeAttribute("aria-sort");
      else this.heads[place].setAttribute("aria-sort", this.falling ? "descending" : "ascending");
    });
    const first = this.page * this.size;
    const shown = this.sorted().slice(first, first + this.size);
    this.body.replaceChildren(...shown.map((item) => this.row(item)));
    if (!shown.length) {
      const none = element("td", { colspan: COLUMNS.length, role: "cell" }, "No items found.");
      this.body.append(element("tr", { class: "empty", role: "row" }, none));
    }
    this.pages.hidden = this.items.length <= this.size;
    document.getElementById("page").textContent =
      `${integer(first + 1)} to ${integer(first + shown.length)} of ${integer(this.items.length)}`;
    document.getElementById("previous").disabled = this.page === 0;
    document.getElementById("next").disabled = first + this.size >= this.items.length;
  }

  row(item) {
    const cells = COLUMNS.map(({ key }) => element("td", { class: key, role: "cell" }, ...this.cell(key, item)));
    return element("tr", { role: "row" }, ...cells);
  }

  cell(key, item) {
    const name = (state) => named(stateName(state), this.query);
    const hint = (text) => element("span", { class: "only-narrow dim" }, `${text} `);
    switch (key) {
      case "item":
        return [named(item.name, this.query)];
      case "best":
        return [name(item.best)];
      case "probability":
        return [element("div", { class: "measure" }, bar(item.probability), number(item.probability))];
      case "runner": {
        if (item.states.length < 2) return [element("span", { class: "dim only-wide" }, "none")];
        return [hint("or"), name(item.states[1]), " ", element("span", { class: "dim number" }, percent(item.second))];
      }
      case "set": {
        const listed = item.states.slice(0, Math.min(item.size, MOST_IN_SET)).map(name);
        const more = item.size - listed.length;
        if (more > 0) listed.push(element("span", { class: "dim" }, `${more} more`));
        // Commas stay outside of names, which may run from right to left.
        return [hint(SET_TITLE), ...listed.flatMap((part, place) => (place ? [", ", part] : [part]))];
      }
      default:
        return [hint("unmatched"), number(item.unmatched)];
    }
  }
}

const number = (probability) => element("span", { class: "number" }, percent(probability));
